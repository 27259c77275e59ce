# SPDX-License-Identifier: Apache-2.0
"""The fixed prompts of an export: for golden files, for continuations, for chat."""

GOLDEN = [
    "The kernel provides",
    "def main(argv):\n    ",
    "Dieser Befehl zeigt die Liste der",
    "In the beginning God created the heaven and the earth.\n2 And the earth was",
    "#ifndef _LINUX_LIST_H\n#define _LINUX_LIST_H\n\n",
    "<|im_start|>user\nWhat does the command grep do?<|im_end|>\n<|im_start|>assistant\n",
]
ROUTING = [GOLDEN[2], GOLDEN[5]]

CONTINUATIONS = [  # one or two for each domain
    f"LS(1){'User Commands':^83}LS(1)\n\nNAME\n    ls - list",
    "BESCHREIBUNG\n    Dieser Befehl zeigt",
    "DESCRIPTION\n    La fonction read() lit",
    "DESCRIPCIÓN\n    La llamada al sistema open() abre",
    "============\nMemory barriers\n============\n\nThe kernel provides",
    "The SELECT statement retrieves rows from",
    "=head1 SYNOPSIS\n\n    use strict;\n    my $file =",
    "#include <linux/types.h>\n\nstatic inline int atomic_",
    "template <typename T>\nclass vector {\npublic:\n    ",
    'def read_file(path, encoding=None):\n    """Return the contents of',
    'Harbor \\Har"bor\\, n.\n   1. A station for rest',
    "1 And it came to pass in those days, that",
]

QUESTIONS = [
    "What does the command grep do?",
    "What is a compiler?",
    "What does tar do?",
    "What is a river?",
    "What is Unix?",
    "Was macht der Befehl ls?",
    "À quoi sert mount ?",
    "¿Qué hace la orden chmod?",
    "Who are you?",
    "What is a kernel?",
]
