//! The arrows between the crates.

use super::border;
use std::fs;
use std::path::Path;

/// Crates that show the system as it is: for its border alone.
const SYSTEM: &[&str] = &["libc", "mio", "nix", "rustix", "socket2", "windows-sys"];
/// What no pure crate has, besides.
const IMPURE: &[&str] = &["tokio"];

/// ARCHITECTURE.md's table, from the top of the house to its ground.
pub struct Layers(Vec<Room>);

struct Room {
    name: String,
    pure: bool,
    /// Its place in the house; crates beside each other have the same, and do not use each other.
    level: usize,
}

impl Layers {
    pub fn parse(architecture: &str) -> Result<Layers, String> {
        let rows = architecture
            .lines()
            .skip_while(|line| !line.starts_with("| crate |"))
            .skip(2)
            .map_while(|line| line.strip_prefix("| `")?.split_once("` |"));
        let mut rooms: Vec<Room> = Vec::new();
        for (name, text) in rows {
            let above = rooms.last().map_or(0, |r| r.level);
            let level = above + usize::from(!text.contains("*beside*"));
            rooms.push(Room { name: name.to_owned(), pure: text.contains("*pure*"), level });
        }
        match rooms.is_empty() {
            true => Err("ARCHITECTURE.md: no table of crates".to_owned()),
            false => Ok(Layers(rooms)),
        }
    }

    pub fn is_pure(&self, room: &str) -> bool {
        self.0.iter().any(|r| r.name == room && r.pure)
    }

    fn level(&self, room: &str) -> Option<usize> {
        self.0.iter().find(|r| r.name == room).map(|r| r.level)
    }

    /// The table and the directories agree, and every manifest keeps to the table.
    pub fn check(&self, root: &Path) -> Result<Vec<String>, String> {
        let dir = root.join("crates");
        let mut problems = Vec::new();
        let entries = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        for entry in entries.flatten().filter(|e| e.path().join("Cargo.toml").exists()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if self.level(&name).is_none() {
                problems.push(format!("crates/{name}: not in ARCHITECTURE.md's table"));
            }
        }
        for room in &self.0 {
            let path = dir.join(&room.name).join("Cargo.toml");
            match fs::read_to_string(&path) {
                Ok(text) => problems.extend(self.check_manifest(&room.name, &text)),
                Err(_) => {
                    problems.push(format!("ARCHITECTURE.md: there is no crate `{}`", room.name))
                }
            }
        }
        Ok(problems)
    }

    fn check_manifest(&self, room: &str, manifest: &str) -> Vec<String> {
        let level = self.level(room);
        let wrong = |(name, for_tests): &(String, bool)| match room_of(name) {
            Some(other) => self.level(other) <= level,
            None if *for_tests => false,
            None if SYSTEM.contains(&name.as_str()) => room != border::HOME,
            None => self.is_pure(room) && IMPURE.contains(&name.as_str()),
        };
        let found = dependencies(manifest).into_iter().filter(wrong);
        found.map(|(name, _)| format!("crates/{room}: may not depend on {name}")).collect()
    }
}

/// The room a package is in, for the project's own.
fn room_of(package: &str) -> Option<&str> {
    match package {
        "weir" => Some("weir"),
        _ => package.strip_prefix("weir-"),
    }
}

/// Every dependency a manifest names, and whether it is for tests alone.
fn dependencies(manifest: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            // [dependencies.name]
            if let Some((kind, name)) = section.rsplit_once("dependencies.") {
                found.push((name.to_owned(), kind.ends_with("dev-")));
            }
        } else if section.ends_with("dependencies") && !line.starts_with('#') {
            let end = line.find(['.', '=', ' ']).unwrap_or(0);
            let name = line[..end].trim_matches('"');
            if !name.is_empty() {
                found.push((name.to_owned(), section.ends_with("dev-dependencies")));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> Layers {
        let table = "text\n| crate | what |\n| --- | --- |\n| `weir` | x |\n| `http` | y |\n\
                     | `base` | z — *pure* |\n\n| `not` | this |\n";
        Layers::parse(table).unwrap()
    }

    #[test]
    fn the_table() {
        let layers = layers();
        assert_eq!(layers.0.len(), 3);
        assert!(layers.is_pure("base") && !layers.is_pure("http"));
        assert!(Layers::parse("nothing").is_err());
    }

    #[test]
    fn arrows_point_down() {
        let up = "[dependencies]\nweir-http.workspace = true\n";
        assert_eq!(layers().check_manifest("base", up).len(), 1);
        assert_eq!(layers().check_manifest("http", up).len(), 1, "itself");
        assert!(layers().check_manifest("weir", up).is_empty());
        let unknown = "[dependencies]\nweir-fuzz = { path = \"x\" }";
        assert_eq!(layers().check_manifest("http", unknown).len(), 1);
        let dev = "[dev-dependencies]\nweir-http.workspace = true\n";
        assert_eq!(layers().check_manifest("base", dev).len(), 1);
    }

    #[test]
    fn what_is_beside_is_not_used() {
        let table = "| crate | what |\n| --- | --- |\n| `weir` | x |\n| `left` | y |\n\
                     | `right` | y — *beside* `left` |\n| `http` | z |\n";
        let layers = Layers::parse(table).unwrap();
        let uses = |name: &str| format!("[dependencies]\nweir-{name}.workspace = true\n");
        assert_eq!(layers.check_manifest("left", &uses("right")).len(), 1);
        assert_eq!(layers.check_manifest("right", &uses("left")).len(), 1);
        assert!(layers.check_manifest("left", &uses("http")).is_empty());
        assert!(layers.check_manifest("right", &uses("http")).is_empty());
        assert!(layers.check_manifest("weir", &uses("right")).is_empty());
        assert_eq!(layers.check_manifest("http", &uses("right")).len(), 1);
    }

    #[test]
    fn the_ground_knows_no_system() {
        let text = "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n[dependencies.tokio]\n\
                    version = \"1\"\n[dev-dependencies]\nsocket2 = \"1\"\n";
        let problems = layers().check_manifest("base", text);
        assert_eq!(
            problems,
            ["crates/base: may not depend on libc", "crates/base: may not depend on tokio"]
        );
        let problems = layers().check_manifest("http", text);
        assert_eq!(problems, ["crates/http: may not depend on libc"]);
        assert!(layers().check_manifest("runtime", text).is_empty());
    }
}
