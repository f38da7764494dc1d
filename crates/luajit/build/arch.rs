//! What LuaJIT's own headers say of the system that it is built for.

use std::path::Path;

/// What the preprocessor knows behind `lj_arch.h`.
pub(crate) struct Arch(String);

impl Arch {
    pub(crate) fn of(src: &Path) -> Arch {
        let text =
            cc::Build::new().file(src.join("lj_arch.h")).flag("-dM").warnings(false).expand();
        Arch(String::from_utf8_lossy(&text).into_owned())
    }

    fn value(&self, name: &str) -> Option<&str> {
        let mut words = self.0.lines().filter_map(|l| l.strip_prefix("#define "));
        words.find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')).map(str::trim)
    }

    fn is_on(&self, name: &str) -> bool {
        self.value(name) == Some("1")
    }

    /// The name of the assembler's source and of the target.
    pub(crate) fn name(&self) -> &'static str {
        let known = [("LJ_TARGET_X64", "x64"), ("LJ_TARGET_ARM64", "arm64")];
        let found = known.into_iter().find(|(name, _)| self.is_on(name));
        found.map(|(_, arch)| arch).expect("LuaJIT is built for x86-64 and ARM64 alone")
    }

    pub(crate) fn is_windows(&self) -> bool {
        std::env::var_os("CARGO_CFG_WINDOWS").is_some()
    }

    /// As Debian calls it in paths.
    pub(crate) fn multiarch(&self) -> &'static str {
        if self.is_on("LJ_TARGET_X64") {
            "x86_64-linux-gnu"
        } else {
            "aarch64-linux-gnu"
        }
    }

    /// What the assembler's preprocessor is told, as LuaJIT's Makefile tells it.
    pub(crate) fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        let mut put = |flag: &str| flags.extend(["-D".to_owned(), flag.to_owned()]);
        put(if self.is_on("LJ_LE") { "ENDIAN_LE" } else { "ENDIAN_BE" });
        if self.value("LJ_ARCH_BITS") == Some("64") {
            put("P64");
        }
        let by_one = [
            ("LJ_HASJIT", "JIT"),
            ("LJ_HASFFI", "FFI"),
            ("LJ_DUALNUM", "DUALNUM"),
            ("LJ_ARCH_HASFPU", "FPU"),
            ("LJ_NO_UNWIND", "NO_UNWIND"),
            ("LJ_ABI_PAUTH", "PAUTH"),
            ("LJ_ABI_BRANCH_TRACK", "BRANCH_TRACK"),
            ("LJ_ABI_SHADOW_STACK", "SHADOW_STACK"),
        ];
        by_one.iter().filter(|(name, _)| self.is_on(name)).for_each(|(_, flag)| put(flag));
        if self.is_windows() {
            put("WIN");
        }
        if !self.is_on("LJ_ABI_SOFTFP") {
            put("HFABI");
        }
        put(&format!("VER={}", self.value("LJ_ARCH_VERSION").unwrap_or_default()));
        flags
    }
}
