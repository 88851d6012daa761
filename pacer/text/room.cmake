# utf8proc: case mapping, categories and normalisation; PCRE2: the pre-tokenizers' regular expressions.
target_link_libraries(pacer_text PRIVATE PkgConfig::PCRE2 PkgConfig::UTF8PROC)
