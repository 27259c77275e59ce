# SPDX-License-Identifier: Apache-2.0
"""The texts that tokenizer goldens encode, and the text that the small tokenizers are trained on.

Characters that a reader cannot see are written as escapes. The order is part of the goldens: cases
name a text by its index, so new texts go to the end.
"""

SPACES_AND_LINES = [
    "", " ", "  ", "   ", "       ", "\t", "\t\t x", "\n", "\n\n", "\r\n", "\r", "\r\n\r\n", " \n", "\n ",
    "a b", "a  b", "a   b", "a\tb", "a \t b", "  leading", "trailing  ", "   both   ", "one\ntwo", "one\n\n\ntwo",
    "one \n two", "line\r\nline\r\n", "mixed \r\n\t \n end", "x\n   y", "x   \ny", "\u00a0no-break\u00a0space",
    "em\u2003space thin\u2009space", "ideographic\u3000space", "next\u0085line", "form\x0cfeed and\x0bvertical",
    "line\u2028separator\u2029paragraph", "mongolian\u180evowel separator", "a\u180e b \u180e\u180e c",
]

WORDS_AND_NUMBERS = [
    "Hello world", "Hello, world!", "hello HELLO HeLLo", "The quick brown fox jumps over the lazy dog.",
    "I'm you're he's we've they'll I'd don't", "I'M YOU'RE HE'S WE'VE THEY'LL I'D DON'T", "it's 'quoted' rock'n'roll",
    "it\u2019s a curly apostrophe", "'s 't 're 've 'm 'll 'd", "'S'T'RE x'Ll y'vE", "o'clock 'em 'tis",
    "0", "7", "42", "123", "1234", "12345", "1234567890", "3.14159", "-1e-10", "1,000,000.00", "0x1F 0b101",
    "v2.0.1-rc3", "a1b2c3", "1st 2nd 3rd", "x=1;y=22;z=333", "2024-02-29T23:59:60Z", "+49 (0)89 1234-5678",
    "half \u00bd two\u00b2 three\u00b3 \u2460\u2461 \u2167", "\u0661\u0662\u0663 \u0967\u0968\u0969 \uff11\uff12\uff13",
    "100% $5.00 \u20ac3 \u00a34 \u00a55", "snake_case camelCase PascalCase SCREAMING_CASE kebab-case",
    "supercalifragilisticexpialidocious", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ababababababababababab",
    "email@example.com https://example.com/a?b=c&d=%20#e", "C:\\path\\to\\file /usr/lib/x86_64 ~/.config",
]

CODE = [
    "def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) { a[i] *= 2; }", "if(!x){return;}//done",
    "#include <vector>\n\nint main() {\n\treturn 0;\n}\n", "{\"key\": [1, 2.5, null, true], \"s\": \"\\u00e9\\n\"}",
    "SELECT * FROM t WHERE a <> 'b' -- comment", "<p class=\"x\">&amp;</p><!-- c -->", "a->b::c<d>&&e||!f",
    "        eight spaces", "                    twenty spaces", "\t\tif x:\n\t\t\ty()\n", "x  =  1   # two  spaces",
    "$HOME/${var:-x} `cmd` $(ls | wc -l)", "...", "?!?!", "-----", "=====>", "((()))[]{}", "/* ** */ // /// ////",
    "a/b//c ///\n/x", "!!!\n\n???\r\n...", " .hidden ,comma ;semi", "\"\"\"doc\"\"\" '''doc'''", "\\n is not \n",
]

LANGUAGES = [
    "Z\u00fcrich, K\u00f6ln, stra\u00dfe, \u00c4rger", "Fran\u00e7ais: \u00e0 la c\u0153ur na\u00efve \u00ab guillemets \u00bb",
    "Espa\u00f1ol: \u00bfQu\u00e9 tal? \u00a1Ma\u00f1ana!", "Ti\u1ebfng Vi\u1ec7t c\u00f3 d\u1ea5u", "Za\u017c\u00f3\u0142\u0107 g\u0119\u015bl\u0105 ja\u017a\u0144",
    "\u0130stanbul \u0131\u015f\u0131k", "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u03ba\u03b1\u03b9 \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0407\u0436\u0430\u043a \u0451\u043b\u043a\u0430", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064a\u0641\u061f", "\u0648\u064e\u0627\u0644\u0652\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u064e\u0629\u064f",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f", "\u09ac\u09be\u0982\u09b2\u09be \u09ad\u09be\u09b7\u09be",
    "\u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e17\u0e35\u0e48\u0e19\u0e35\u0e48", "\u1019\u103c\u1014\u103a\u1019\u102c\u1005\u102c",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "Hello\u4f60\u597dworld\u4e16\u754c123", "\u6f22\u5b57\u3068\u3072\u3089\u304c\u306a\u3068\u30ab\u30bf\u30ab\u30ca\u3002",
    "\uff8a\uff9d\uff76\uff78 \uff21\uff22\uff23 \uff01\uff1f\uff5e\u300c\u300d", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "\U00020000\U0002a6d6 \u9fa5\u9fff\u3007\u3021", "\u4e00\u9fa5\u3040\u309f\u30a0\u30ff\u3005\u30fb",
    "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u1c92\u1c90", "\u1200\u1208\u121d", "\u13a0\u13a1 \uab70\uab71", "\u0531\u0575\u0562",
]

UNICODE = [
    "caf\u00e9", "cafe\u0301", "A\u030a \u212b \u00c5", "\u1e9b\u0323 s\u0323\u0307 \u1e69", "o\u0302\u0323 o\u0323\u0302", "\u0344 \u0958 \u2126 \u212a",
    "fi \ufb01 ffi \ufb03 \u2168 \u210c", "long \u017f and it'\u017f IT'\u017f x'\u017fs", "\u212aelvin 'll 'L\u017f", "\u01c5 \u01c8 \u01cb \u1f88",
    "\u02b0\u02b7 \u1d2c modifier", "Z\u0351\u036b\u0343a\u0322l\u034eg\u0333o", "\u0301lone mark", " \u0301after space", "a\u0301\u0301\u0301b",
    "zero\u200bwidth\u200cnon\u200djoiner\u2060word", "soft\u00adhyphen", "\ufeffbyte order mark", "end\ufeff", "\u200eleft\u200fright\u202eover\u202c",
    "\U0001f600 \U0001f601\U0001f602", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family", "\u2764\ufe0f \u2764 \u2639\ufe0e",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 flags \U0001f1e6", "1\ufe0f\u20e3 #\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\U0001d4d7\U0001d4ee \U0001d7d8\U0001d7d9",
    "\u2190\u2191\u2192 \u2211\u222b\u221a\u221e \u2260\u2264", "\u2500\u2502\u250c \u2588\u2591 \u2603\u2605", "\u2014 em\u2014dash \u2013 en \u2026 \u2022 bullet", "\u201cquotes\u201d \u2018single\u2019 \u201elow\u201c",
    "nul\x00byte", "bell\x07 esc\x1b[0m del\x7f", "\ufffd \ufffd\ufffd", "\ue000 private \U000f0000", "non\ufffecharacter\uffff", "\u0378 unassigned \U0001fbfa",
    "Ax\u00a9\u00ae\u2122 \u00b5 \u00ba \u00aa", "\u2581under\u2581score_\u2581", "\u0120byte\u010alevel\u0120letters",
]

SPECIALS = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>",
    "<|im_start|", "<|im_start|>>", "<<|im_end|>>", "<think>\nhm\n</think>\n\nyes", "<s>text</s>", "<s> text </s> more", "<unk><pad>", "x<s>y</s>z",
    "<0x41><0x0A>", "<0xZZ>", "[MASK] a [MASK]b  [MASK]  c", "a[STRIP]b [STRIP] c", "left  [LEFT]  right", "left  [RIGHT]  right",
    "word words wordy sword word", "Caf\u00c9 CAF\u00c9 cafe\u0301 NORMALIZED normalized Normalized", "raw Raw RAW", "<tool_call>{\"a\": 1}</tool_call>",
    "<|begin_of_text|><|eot_id|>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>User: hi<\uff5cend\u2581of\u2581sentence\uff5c>", "  \n<|im_end|>\n  ", "longest <tok> <token> <tokens>",
]

# Texts in which two patterns that look alike part at different places.
EDGES = [
    "a\u180e!! \u180e!x \u180e\n!", "x\u0085\n!! \u0085!", "1\u00a0!! \u00a0\u00a0a \u3000\u3000b", "a!b'c \"d'e ('s) 'S's",
    "12345abc 1234 567890 3,14", "abc/def// /x/\n//\n y", "end.\n\n  next.\r\n\tx ...\n\n\n!", "tabs\t\tword \t word\t!\t1",
    "ABCdef AbC ABCDe \u01c5aB \u01c8\u01c9", "don't DON'T Don'T it'S 'Tis we'LL'VE", "e\u0301a\u0301 x\u0301! \u0301! 1\u0301",
    "\u4f60\u597d12\u3402\u9fa6\u3040\u30ff a\u4e00b!\u4e8c", "$$\\frac{1}{2}$$ #tag @user &amp; +1-2*3", "    \n    x\n\n    y    ", "\n\n\n \n  \n\t\n",
    "\u2460\u00b2x \u2167\u0661\u0662\u0663\u0664", "a_b __c__ d-e --f-- g.h ..i..", "\u00aa\u00ba\u02b0 \u24d0\u24b6 \U0001f150",
    "he'REd we'LLama I'Mine 'Data 'VEto 'Soda 'Tis x'\u017fung", "\u0e44\u0e17\u0e22  ", "\U0001f600\U0001f600   ", "\u2460\t\n  ",
    "so's it'll've I'd'nt", "(a)(b) .5 -7 'x' \"y\"", "a.b.c! ?d", "\uff01a \u3002b\uff5ec \u201cd \u2018e", "x\u2003\u2003y\u2003", "v1.10.100 1a2b33c444d5555",
    "\U0001f600 ", "\u01c5aB \u01c8e", "12 ", "! ",
]

TEXTS = SPACES_AND_LINES + WORDS_AND_NUMBERS + CODE + LANGUAGES + UNICODE + SPECIALS + EDGES

_SENTENCES = [
    "The engine reads the weights of the model and keeps the experts in memory.",
    "Every token is routed to the best experts and their outputs are added together.",
    "She said that they would come back when the weather was better.",
    "What's the difference between the first answer and the second answer?",
    "Numbers such as 12, 345 and 6789 are split in different ways in 2024.",
    "Das Modell w\u00e4hlt f\u00fcr jedes Wort die besten Experten und z\u00e4hlt sie.",
    "Der Hund l\u00e4uft \u00fcber die Stra\u00dfe und die Katze schl\u00e4ft in der K\u00fcche.",
    "Le mod\u00e8le choisit les experts pour chaque mot et la r\u00e9ponse est pr\u00eate.",
    "El modelo elige los expertos para cada palabra y la respuesta est\u00e1 lista.",
    "\u041c\u043e\u0434\u0435\u043b\u044c \u0432\u044b\u0431\u0438\u0440\u0430\u0435\u0442 \u044d\u043a\u0441\u043f\u0435\u0440\u0442\u043e\u0432 \u0434\u043b\u044f \u043a\u0430\u0436\u0434\u043e\u0433\u043e \u0441\u043b\u043e\u0432\u0430.",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u6a21\u578b\u9009\u62e9\u4e13\u5bb6\uff0c\u4e13\u5bb6\u56de\u7b54\u95ee\u9898\u3002",
    "\u3053\u3093\u306b\u3061\u306f\u3001\u4e16\u754c\u3002\u30e2\u30c7\u30eb\u306f\u5c02\u9580\u5bb6\u3092\u9078\u3073\u307e\u3059\u3002",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4. \ubaa8\ub378\uc740 \uc804\ubb38\uac00\ub97c \uc120\ud0dd\ud569\ub2c8\ub2e4.",
    "\u0627\u0644\u0646\u0645\u0648\u0630\u062c \u064a\u062e\u062a\u0627\u0631 \u0627\u0644\u062e\u0628\u0631\u0627\u0621 \u0644\u0643\u0644 \u0643\u0644\u0645\u0629.",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u092f\u0939 \u090f\u0915 \u092e\u0949\u0921\u0932 \u0939\u0948\u0964",
    "def forward(self, x):\n    y = self.router(x)\n    return self.experts(x, y)\n",
    "for (int i = 0; i < count; ++i) {\n    total += values[i];\n}\n",
    "if (result.ok()) {\n        return result.value();\n    }\n\n",
    "{\"name\": \"value\", \"list\": [1, 22, 333], \"flag\": true}\r\n",
    "I'm sure it's fine, we've seen that they'll come and you'd say they're right; don't worry.",
    "HELLO WORLD, THE EXPERTS ARE READY AND THE TOKENS ARE ROUTED.",
    "A router, a counter, a reader, a writer, a loader: routing, counting, reading, writing, loading.",
    "x = 1; y = 22; z = 333 # a comment  with   spaces",
    "!!! ??? ... --- === *** /// &&& ||| ((( )))",
    "\U0001f600 \U0001f44d \u2764\ufe0f \U0001f680 a smile, a thumb, a heart, a rocket",
]

# Sentences with different weights, so that pair counts differ and merges are not mostly ties.
TRAINING = [text for index, text in enumerate(_SENTENCES) for _ in range(1 + index % 4)]
