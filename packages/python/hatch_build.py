"""Names the platform of the wheel: the oldest glibc that has all symbols of the binary (PEP 600)."""

import platform
import re
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Platform(BuildHookInterface):
    def initialize(self, version, build_data):
        binary = Path(self.root, "monolite").read_bytes()
        # The table of dynamic strings has each version of a symbol between two zeros.
        needed = re.findall(rb"\0GLIBC_2\.(\d+)(?:\.\d+)?(?=\0)", binary)
        system = f"manylinux_2_{max(map(int, needed))}" if needed else "linux"
        build_data["tag"] = f"py3-none-{system}_{platform.machine()}"
        build_data["pure_python"] = False
