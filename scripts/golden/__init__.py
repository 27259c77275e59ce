# SPDX-License-Identifier: Apache-2.0
"""Writers of the files under tests/golden/, one module for each kind of golden."""
