# utf8proc: case mapping, categories and normalisation; PCRE2: the pre-tokenizers' regular expressions; simdjson: the
# large tables of tokenizer.json.
target_link_libraries(pacer_text PRIVATE PkgConfig::PCRE2 PkgConfig::UTF8PROC simdjson::simdjson)
