"""Writes cases.jsonl: variations of the tiny tokenizers, and what the Python package `tokenizers` 0.22.2 makes of ten texts."""
import copy
import json
import pathlib
import string

import tokenizers

assert tokenizers.__version__ == "0.22.2"
here = pathlib.Path(__file__).parent
bases = {n: json.loads((here.parent / "tokenizers" / n / "tokenizer.json").read_text())
         for n in ("tiny_qwen_style", "tiny_byte_fallback")}
Q, F = "tiny_qwen_style", "tiny_byte_fallback"
texts = [
    "", " ", "  leading   and trailing   ", "x     y",
    "The quick  brown fox's 12345 jumps,\n\n over\t\tthe lazy dog! It's DON'T",
    "<think>words word sword</think> <strip> x <|im_end|>\n",
    "e\u0301 a\u0327\u0301x \u1100\u1161\u11a8 \ufb01 \u212b \u0130 \u017f's \u0301",
    "\u4f60\u597d\uff0c\u4e16\u754c \u00bd \u00b2 \u2167 \u3000 \u65e5\u672c\u8a9e stra\u00dfe",
    "\U0001f600\U0001f469\u200d\U0001f4bb\u2581x\u2581\u2581 <0x41> \0 \ufeff",
    "tth ITT itt Itt quii\u3000quiix \u00e9\u00e9 \u00e9e\u0301",
    "foo_bar-x1y2 ...!!! $3.14 #a\r\nb\u00a0c\u180e\u2028d\u0085 \u24b6\u0903",
]
byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def pre(*parts):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*parts, byte_level]}}


cases = {}
for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
    for invert in (False, True):
        cases[f"split {behavior} invert {invert}"] = (Q, pre(split(r"[\s\w]{2}|\p{P}", behavior, invert)))
    cases[f"split at text {behavior}"] = (Q, pre(split(" ", behavior, False, "String")))
    cases[f"punctuation {behavior}"] = (Q, pre({"type": "Punctuation", "behavior": behavior}))
for prefix in (True, False):
    step = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    cases[f"byte level prefix {prefix} trimmed"] = (Q, {"pre_tokenizer": step, "post_processor": step})
    cases[f"digits individual {prefix}"] = (Q, pre({"type": "Digits", "individual_digits": prefix}))
for scheme in ("always", "first", "never"):
    for cut in (True, False):
        step = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}
        cases[f"metaspace {scheme} split {cut}"] = (F, {"normalizer": None, "pre_tokenizer": step, "decoder": step})
    step = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": True}
    cases[f"metaspace {scheme} after strip"] = (F, {"normalizer": {
        "type": "Strip", "strip_left": True, "strip_right": False}, "pre_tokenizer": step, "decoder": step})
fallback = {"type": "ByteFallback"}


def decoders(*parts):
    return {"type": "Sequence", "decoders": list(parts)}


cases["whitespace, no decoder"] = (F, {"normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "decoder": None})
cases["whitespace split, lowercase, fuse"] = (F, {"normalizer": {"type": "Lowercase"},
                                                  "pre_tokenizer": {"type": "WhitespaceSplit"},
                                                  "decoder": {"type": "Fuse"}})
cases["whitespace split and punctuation"] = (F, {"normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}]}, "decoder": fallback})
cases["strip each token"] = (F, {"decoder": decoders({"type": "Strip", "content": "e", "start": 2, "stop": 0})})
cases["strip the fused text"] = (F, {"decoder": decoders(fallback, {"type": "Fuse"},
                                                         {"type": "Strip", "content": "\u2581", "start": 3, "stop": 0})})
cases["decode with an expression"] = (F, {"decoder": decoders({"type": "Replace", "pattern": {"Regex": "[\u2581e]+"}, "content": "_"})})
cases["delimiter"] = (F, {"normalizer": None, "pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": "e"}})
for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
    cases[f"normalizer {name}"] = (Q, {"normalizer": {"type": name}})
cases["normalizer Strip"] = (Q, {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}})
cases["normalizer ByteLevel"] = (Q, {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None})
cases["normalizers in a row"] = (Q, {"normalizer": {"type": "Sequence", "normalizers": [
    {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
    {"type": "Replace", "pattern": {"String": "e"}, "content": "xyz\u00e9"},
    {"type": "Replace", "pattern": {"Regex": "o(?=r)"}, "content": ""}, {"type": "Prepend", "prepend": "\u00fc_"}]}})
cases["no splits"] = (Q, {"normalizer": None, "pre_tokenizer": byte_level})
cases["ignore merges"] = (Q, {"model": {"ignore_merges": True}})
for fuse in (True, False):
    cases[f"unknown fused {fuse}"] = (F, {"model": {"byte_fallback": False, "fuse_unk": fuse}})
cases["unknown dropped"] = (F, {"model": {"byte_fallback": False, "unk_token": None}})
cases["some bytes missing"] = (F, {"without": [f"<0x{b:02X}>" for b in range(0x80, 0x100, 3)]})
for pattern in (r"\w+|\W", r"\b", r"\B\S", r"\p{N}{1,3}+|\p{L}{,2}|[\S\h]++|\s?+\S", r"^.|.$|\R", r"\d+|[^\d\w\s]|\h\H",
                r"[[:alpha:]]+|[[:digit:]_]+|[[:upper:][:space:]]|\p{Han}|\p{^L}", r"(?i)k|ss|stra\u00dfe|[^a-z]", r"(?<=o)\w|x*",
                r"[^\S\n]|\x{65}|\u0301|\v"):
    cases[f"expression {pattern}"] = (Q, pre(split(pattern)))
end, start = ["<|im_end|>", 1002], ["<|im_start|>", 1001]
cases["roberta"] = (Q, {"post_processor": {"type": "RobertaProcessing", "sep": end, "cls": start, "trim_offsets": True, "add_prefix_space": True}})
cases["bert"] = (Q, {"post_processor": {"type": "BertProcessing", "sep": end, "cls": start}})
cases["template, then trimmed"] = (Q, {"post_processor": {"type": "Sequence", "processors": [
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "S", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                              {"SpecialToken": {"id": "E", "type_id": 0}}],
     "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
     "special_tokens": {"S": {"id": "S", "ids": [1000, 1001], "tokens": ["<|endoftext|>", "<|im_start|>"]},
                        "E": {"id": "E", "ids": [1002], "tokens": ["<|im_end|>"]}}},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}]}})


def token(id, content, **flags):
    return dict(id=id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False) | flags


cases["added tokens"] = (Q, {"added_tokens": bases[Q]["added_tokens"] + [
    token(1008, "tth", normalized=True), token(1009, "quii", single_word=True, lstrip=True),
    token(1010, "\u00e9\u00e9", rstrip=True, normalized=True, special=True), token(1011, "<|", lstrip=True, rstrip=True, special=True),
    token(1012, "Itt", single_word=True, lstrip=True, rstrip=True, normalized=True)],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}})


def affix_model(mark, first, rest, pairs, **keys):
    vocab, merges = {"<unk>": 0}, []
    for c in string.ascii_lowercase + "'.,!?0123456789":
        for piece in (first(c), rest(c)):
            vocab[piece] = len(vocab)
    for a, b in pairs:
        joined = a + (b[len(mark):] if mark == "##" else b)
        vocab.setdefault(joined, len(vocab))
        merges.append([a, b])
    return {"version": "1.0", "truncation": None, "padding": None, "post_processor": None,
            "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": False, "byte_fallback": False,
                      "vocab": vocab, "merges": merges, **keys}}


suffix = affix_model("</w>", lambda c: c, lambda c: c + "</w>",
                     [("t", "h"), ("th", "e</w>"), ("o", "r"), ("w", "or"), ("wor", "d</w>"), ("q", "u"), ("qu", "i")],
                     end_of_word_suffix="</w>", continuing_subword_prefix=None)
prefix = affix_model("##", lambda c: c, lambda c: "##" + c, [("t", "##h"), ("th", "##e"), ("##o", "##r"), ("w", "##or"), ("q", "##u")],
                     end_of_word_suffix=None, continuing_subword_prefix="##")
cases["end of word suffix"] = (None, suffix | {"decoder": {"type": "BPEDecoder", "suffix": "</w>"}})
cases["continuing subword prefix"] = (None, prefix | {"decoder": None})


with open(here / "cases.jsonl", "w") as out:
    for name, (base, change) in cases.items():
        config = copy.deepcopy(bases.get(base, {"model": {}, "added_tokens": []}))
        config["model"] |= change.get("model", {})
        for piece in change.get("without", []):
            del config["model"]["vocab"][piece]
        config |= {key: value for key, value in change.items() if key not in ("model", "without")}
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(config))
        records = []
        for text in texts:
            plain, special = tokenizer.encode(text, add_special_tokens=False), tokenizer.encode(text)
            record = {"text": text, "ids": plain.ids, "offsets": plain.offsets,
                      "decoded": tokenizer.decode(plain.ids, skip_special_tokens=False),
                      "decoded_skip_special": tokenizer.decode(plain.ids, skip_special_tokens=True)}
            if special.ids != plain.ids or special.offsets != plain.offsets:
                record |= {"ids_with_special": special.ids, "offsets_with_special": special.offsets}
            records.append(record)
        out.write(json.dumps({"name": name, "base": base, "change": change, "records": records}, separators=(",", ":")) + "\n")
