//! Builds LuaJIT as its Makefile does, in the same steps: a small Lua for its tools, the interpreter's assembler,
//! tables that are made of the sources, and the library as one file.

mod arch;
mod sources;

use arch::Arch;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library's parts whose functions are known to the interpreter, in the Makefile's order.
const LIBS: [&str; 12] = [
    "base", "math", "bit", "string", "table", "io", "os", "package", "debug", "jit", "ffi",
    "buffer",
];

/// Cargo reads what is printed.
#[allow(clippy::print_stdout)]
fn main() {
    println!("cargo:rerun-if-changed=build");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names the folder"));
    let root = sources::lay_out(&out);
    let src = root.join("src");
    let arch = Arch::of(&src);
    let tools = Tools { src: src.clone(), out: out.clone() };

    let minilua = tools.build("minilua", &["host/minilua.c"], &[]);
    fs::copy(root.join(".relver"), src.join("luajit_relver.txt")).expect("the version is there");
    tools.run(Command::new(&minilua).args([
        "host/genversion.lua",
        "luajit_rolling.h",
        "luajit_relver.txt",
        "luajit.h",
    ]));
    let vm = format!("vm_{}.dasc", arch.name());
    let mut dynasm = Command::new(&minilua);
    dynasm.arg("../dynasm/dynasm.lua").args(arch.flags()).args(["-o", "host/buildvm_arch.h", &vm]);
    tools.run(&mut dynasm);
    let target = format!("-DLUAJIT_TARGET=LUAJIT_ARCH_{}", arch.name());
    let parts = ["buildvm", "buildvm_asm", "buildvm_peobj", "buildvm_lib", "buildvm_fold"];
    let parts: Vec<String> = parts.iter().map(|p| format!("host/{p}.c")).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let mut flags = vec![&*target, "-I.", "-Ihost"];
    if arch.is_windows() {
        flags.push("-DLUAJIT_OS=LUAJIT_OS_WINDOWS");
    }
    let buildvm = tools.build("buildvm", &parts, &flags);
    make_tables(&tools, &buildvm, &arch);
    compile(&src, &arch);
    write_modules(&src, &out);
}

/// Programs that are run while building.
struct Tools {
    src: PathBuf,
    out: PathBuf,
}

impl Tools {
    /// A program for this machine.
    fn build(&self, name: &str, sources: &[&str], flags: &[&str]) -> PathBuf {
        let host = env::var("HOST").expect("cargo names it");
        let mut cc = cc::Build::new();
        cc.target(&host).host(&host).opt_level(1).debug(false).warnings(false);
        let program = self.out.join(name);
        let mut command = cc.get_compiler().to_command();
        command
            .args(flags)
            .arg("-DLUAJIT_ENABLE_LUA52COMPAT")
            .args(sources)
            .arg("-o")
            .arg(&program)
            .arg("-lm");
        self.run(&mut command);
        program
    }

    fn run(&self, command: &mut Command) {
        let status = command.current_dir(&self.src).status();
        let status = status.unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(status.success(), "{command:?}: {status}");
    }
}

fn make_tables(tools: &Tools, buildvm: &Path, arch: &Arch) {
    let libs: Vec<String> = LIBS.iter().map(|l| format!("lib_{l}.c")).collect();
    let make = |mode: &str, to: &str, from: &[String]| {
        tools.run(Command::new(buildvm).args(["-m", mode, "-o", to]).args(from));
    };
    match arch.is_windows() {
        true => make("peobj", "lj_vm.o", &[]),
        false => make("elfasm", "lj_vm.S", &[]),
    }
    for (mode, to) in [("bcdef", "lj_bcdef.h"), ("ffdef", "lj_ffdef.h"), ("libdef", "lj_libdef.h")]
    {
        make(mode, to, &libs);
    }
    make("recdef", "lj_recdef.h", &libs);
    make("vmdef", "jit/vmdef.lua", &libs);
    make("folddef", "lj_folddef.h", &["lj_opt_fold.c".to_owned()]);
}

fn compile(src: &Path, arch: &Arch) {
    let mut cc = cc::Build::new();
    cc.file(src.join("ljamalg.c")).include(src);
    match arch.is_windows() {
        true => cc.object(src.join("lj_vm.o")),
        false => cc.file(src.join("lj_vm.S")),
    };
    cc.file("build/hook.c");
    cc.opt_level(2).warnings(false).define("LUAJIT_ENABLE_LUA52COMPAT", None);
    // Compiled loops look whether a hook was set: code that never ends could not be stopped otherwise.
    cc.define("LUAJIT_ENABLE_CHECKHOOK", None);
    // Tables for unwinding are there on both systems: errors of Lua then pass frames of C by them.
    cc.define("LUAJIT_UNWIND_EXTERNAL", None).flag("-funwind-tables");
    cc.flag_if_supported("-fno-stack-protector").flag_if_supported("-fomit-frame-pointer");
    cc.define("_FILE_OFFSET_BITS", "64").define("_LARGEFILE_SOURCE", None);
    // Modules of the system's are looked for where Debian's LuaJIT does: below /usr too, and not /usr/local alone.
    cc.define("LUA_ROOT", "\"/usr\"");
    cc.define("LUA_MULTILIB", &*format!("\"lib/{}\"", arch.multiarch()));
    cc.compile("weirluajit");
}

/// The modules written in Lua, as an expression of Rust's.
fn write_modules(src: &Path, out: &Path) {
    let mut paths: Vec<PathBuf> = fs::read_dir(src.join("jit"))
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|e| e == "lua"))
        .collect();
    paths.sort();
    let mut text = String::from("&[\n");
    for path in paths {
        let name = path.file_stem().and_then(|n| n.to_str()).expect("names are ASCII");
        let shown = path.to_str().expect("the path is text");
        writeln!(text, "(\"jit.{name}\", include_str!({shown:?})),").expect("memory takes it");
    }
    text.push(']');
    fs::write(out.join("modules.rs"), text).expect("the folder can be written");
}
