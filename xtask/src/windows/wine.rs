//! Wine, with a prefix of the tests' own.

use super::kit::Kit;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Wine<'a> {
    pub kit: &'a Kit,
    pub prefix: PathBuf,
}

impl Wine<'_> {
    /// Has its server run until [`Wine::end`]: Debian's starts one that ends with the first program, and takes services
    /// and what else is known of with it. The first start makes the prefix, which takes its time.
    pub fn begin(&self) -> Result<(), String> {
        let system = self.prefix.join("drive_c/windows/system32");
        let failed = |e: std::io::Error| format!("{}: {e}", system.display());
        fs::create_dir_all(&system).map_err(failed)?;
        if let Some(library) = self.kit.library() {
            let name = library.file_name().unwrap_or_default();
            fs::copy(&library, system.join(name)).map_err(failed)?;
        }
        let server = self.kit.wineserver();
        // One of a run that was ended from outside: there is none mostly.
        let _ = self.run(&server, &["--kill"]);
        let _ = self.run(&server, &["--wait"]);
        self.run(&server, &["--persistent"])?;
        // Whatever is started first starts what a system has. Asked by name wineboot does it a second time, with two programs
        // that keep services: one does not know what was told to the other.
        self.run(&self.kit.wine(), &["cmd", "/c", "exit", "0"])
    }

    pub fn end(&self) -> Result<(), String> {
        self.run(&self.kit.wineserver(), &["--kill"])
    }

    fn run(&self, program: &Path, words: &[&str]) -> Result<(), String> {
        let mut command = Command::new(program);
        command.args(words).envs(self.kit.environment());
        command.env("WINEDEBUG", "-all").env("WINEPREFIX", &self.prefix);
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                Err(format!("{} {} ended with {status}", program.display(), words.join(" ")))
            }
            Err(e) => Err(format!("{}: {e}", program.display())),
        }
    }

    /// A script in that folder that has wine run that program.
    pub fn script(&self, folder: &Path, name: &str) -> Result<PathBuf, String> {
        let script = folder.join(name);
        let failed = |e: std::io::Error| format!("{}: {e}", script.display());
        fs::write(&script, self.text(&folder.join(name).with_extension("exe"))).map_err(failed)?;
        Command::new("chmod").arg("755").arg(&script).status().map_err(failed)?;
        Ok(script)
    }

    fn text(&self, program: &Path) -> String {
        let mut text = "#!/bin/sh\nexport WINEDEBUG=-all".to_owned();
        let mut set = |name: &str, value: &Path| {
            let _ = write!(text, " {name}='{}'", value.display());
        };
        set("WINEPREFIX", &self.prefix);
        let environment = self.kit.environment();
        for (name, value) in environment.iter().filter(|(name, _)| *name != "PATH") {
            set(name, Path::new(value));
        }
        let _ =
            write!(text, "\nexec '{}' '{}' \"$@\"\n", self.kit.wine().display(), program.display());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_starts_the_program_with_its_words() {
        let kit = Kit::of(Path::new("/nowhere"));
        let wine = Wine { kit: &kit, prefix: "/a/prefix".into() };
        let text = wine.text(Path::new("/a/weir.exe"));
        assert_eq!(
            text,
            "#!/bin/sh\nexport WINEDEBUG=-all WINEPREFIX='/a/prefix'\n\
             exec '/usr/lib/wine/wine64' '/a/weir.exe' \"$@\"\n"
        );
    }
}
