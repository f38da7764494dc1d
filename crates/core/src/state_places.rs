//! Where `state` files are to be: whether those who write them may is looked at when the configuration is read, for it would
//! show only when the first change is lost.

use crate::os_text;
use crate::shared_file::{is_same_file, place};
use std::path::{Path, PathBuf};
use weir_conf::Position;
use weir_module::{slot, Cf, ConfResult, ConfType, Diagnostic, Level, Slots};
use weir_runtime::files;
use weir_runtime::process;

/// Those that the configuration names, and whether anything writes them.
#[derive(Default)]
struct StatePlaces {
    all: Vec<(PathBuf, Position)>,
    is_written: bool,
}

impl ConfType for StatePlaces {
    const LEVEL: Level = Level::Global;
    slot!();
}

/// A directive there names a file that may be written while the server runs.
///
/// # Errors
///
/// The file is another directive's: each would read what the other has written.
pub fn declare(cf: &mut Cf, at: Position, path: &Path) -> ConfResult {
    let places = cf.get::<StatePlaces>();
    if places.all.iter().any(|(other, _)| is_same_file(other, path)) {
        let text = format!("state file \"{}\" is another zone's already", path.display());
        return Err(Diagnostic::emerg(text)
            .at(at)
            .hint("give each zone a file of its own".to_string()));
    }
    places.all.push((path.to_path_buf(), at));
    Ok(())
}

/// The configuration has something that writes them.
pub fn are_written(cf: &mut Cf) {
    cf.get::<StatePlaces>().is_written = true;
}

/// What is to be told of their folders, each once; `who` writes, or whoever runs this.
pub fn warnings(global: &Slots, who: Option<&process::Identity>) -> Vec<Diagnostic> {
    let mut told: Vec<PathBuf> = Vec::new();
    let mut out = Vec::new();
    let Some(places) = global.find::<StatePlaces>().filter(|p| p.is_written) else { return out };
    let user = who.map(|who| (who.uid, who.gid));
    for (path, at) in &places.all {
        out.extend(who.and_then(|who| unreadable(path, who)).map(|told| told.at(*at)));
    }
    for (path, at) in &places.all {
        let to = place(path);
        let Some(dir) = to.parent().filter(|dir| !told.iter().any(|told| told == dir)) else {
            continue;
        };
        told.push(dir.to_path_buf());
        let Some(e) = files::refuses_files(dir, user) else { continue };
        let (shown, name) = (dir.display(), who.map(|who| who.name.as_str()));
        let text = format!(
            "what the api changes cannot be written to \"{}\" by {}: its directory \"{shown}\" ({})",
            path.display(),
            name.map_or("the user who runs this".to_string(), |name| format!("user \"{name}\"")),
            os_text(&e)
        );
        let mut mend = Vec::new();
        if e.kind() == std::io::ErrorKind::NotFound {
            mend.push(format!("mkdir -p \"{shown}\""));
        }
        mend.extend(name.map(|name| format!("chown {name} \"{shown}\"")));
        if mend.is_empty() {
            mend.push(format!("chmod u+rwx \"{shown}\", as its owner"));
        }
        let hint = format!("make it that user's directory: {}", mend.join(" && "));
        out.push(Diagnostic::warn(text).at(*at).hint(hint));
    }
    out
}

/// It is read with root's rights when the configuration is, and without them by who changes it.
fn unreadable(path: &Path, who: &process::Identity) -> Option<Diagnostic> {
    let e = files::refuses_reading(path, (who.uid, who.gid))?;
    let (shown, name) = (path.display(), &who.name);
    let text = format!(
        "what the api changes is refused: state file \"{shown}\" cannot be read by user \"{name}\" ({})",
        os_text(&e)
    );
    let hint = format!("make it that user's: chown {name} \"{shown}\"");
    Some(Diagnostic::warn(text).hint(hint))
}
