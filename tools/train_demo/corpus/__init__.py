# SPDX-License-Identifier: Apache-2.0
"""Text of Debian packages as a corpus in eleven domains; see build_corpus.py."""
