//! `cargo xtask package windows`: a zip that is unpacked and runs, as nginx's for Windows does; an installer of the same
//! files where `makensis` is (Debian's package nsis); and what winget is told of the zip.
//!
//! All of them are the same bytes for the same program and source.

use super::deb::{self, Tree, VERSION};
use super::zip::Zip;
use crate::windows;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// Where the zip will be to be had, if nobody says.
const URL: &str = concat!("https://weir.example/download/", env!("CARGO_PKG_VERSION"));
/// What is there though nothing is in it yet.
const FOLDERS: [&str; 2] = ["logs", "temp"];
/// The version of winget's schema, by which the manifests were checked.
const SCHEMA: &str = "1.10.0";
const NAME: &str = "Weir.Weir";

/// What the command line says.
struct Wanted {
    binary: Option<PathBuf>,
    out: PathBuf,
    url: String,
}

impl Wanted {
    fn of(root: &Path, mut words: &[&str]) -> Result<Wanted, String> {
        let out = crate::cargo::target(root).join("package");
        let mut wanted = Wanted { binary: None, out, url: URL.to_owned() };
        loop {
            words = match words {
                [] => return Ok(wanted),
                ["--binary", file, rest @ ..] => {
                    wanted.binary = Some(PathBuf::from(file));
                    rest
                }
                ["--out", dir, rest @ ..] => {
                    wanted.out = PathBuf::from(dir);
                    rest
                }
                ["--url", url, rest @ ..] => {
                    wanted.url = url.trim_end_matches('/').to_owned();
                    rest
                }
                [other, ..] => return Err(format!("unknown option of package windows: {other}")),
            };
        }
    }
}

/// `--binary FILE` packs a program that is built already; `--out DIR` says where everything goes, `--url URL` the folder
/// that the zip will be loaded from.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let wanted = Wanted::of(root, words)?;
    let out = &wanted.out;
    fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    windows::get(root, crate::apt::may_install());
    let binary = match &wanted.binary {
        Some(binary) => binary.clone(),
        None => windows::program(root)?,
    };
    let tree = staged(root, &binary, out)?;
    let zip = zipped(&tree, out)?;
    println!("{}", zip.display());
    match installer(root, &tree, out)? {
        Some(made) => println!("{}", made.display()),
        None => println!("no installer: there is no makensis (apt-get install nsis)"),
    }
    for made in manifests(&zip, &wanted.url, out)? {
        println!("{}", made.display());
    }
    if wanted.url == URL {
        println!("these name {URL}: say --url before they are sent to anybody");
    }
    Ok(())
}

/// All files, as they lie beside the program.
fn staged(root: &Path, binary: &Path, out: &Path) -> Result<Tree, String> {
    let tree = Tree::new(&out.join("stage/weir-windows"))?;
    let program = tree.copy(binary, "weir.exe", 0o644)?;
    // Without the lines of source, as in the other packages; the date that it writes into the program is the source's.
    let mut strip = windows::tool(root, "x86_64-w64-mingw32-strip");
    strip.arg("--strip-debug").arg(&program).env("SOURCE_DATE_EPOCH", deb::epoch());
    let _ = crate::child::quiet(&mut strip);
    for (file, to) in [
        ("packaging/windows/nginx.conf", "conf/nginx.conf"),
        ("packaging/windows/fastcgi.conf", "conf/fastcgi.conf"),
        ("packaging/windows/fastcgi_params", "conf/fastcgi_params"),
        ("packaging/windows/scgi_params", "conf/scgi_params"),
        ("packaging/windows/uwsgi_params", "conf/uwsgi_params"),
        ("packaging/conf/mime.types", "conf/mime.types"),
        ("packaging/windows/index.html", "html/index.html"),
        ("packaging/windows/50x.html", "html/50x.html"),
        ("docs/windows.md", "docs/windows.md"),
    ] {
        tree.copy(&root.join(file), to, 0o644)?;
    }
    for (file, to) in [("packaging/windows/README.txt", "README.txt"), ("LICENSE", "LICENSE.txt")] {
        let from = root.join(file);
        let text = fs::read_to_string(&from).map_err(|e| format!("{}: {e}", from.display()))?;
        let text = text.replace("@VERSION@", VERSION).replace('\n', "\r\n");
        tree.write(to, text, 0o644)?;
    }
    dated(&tree)?;
    Ok(tree)
}

/// The installer keeps files' dates.
fn dated(tree: &Tree) -> Result<(), String> {
    let date = UNIX_EPOCH + Duration::from_secs(epoch());
    for name in tree.files()? {
        let path = tree.root().join(name);
        let file = fs::File::options().write(true).open(&path);
        let done = file.and_then(|file| file.set_modified(date));
        done.map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn epoch() -> u64 {
    deb::epoch().parse().unwrap_or(0)
}

fn base() -> String {
    format!("weir-{VERSION}-windows-x86_64")
}

fn zipped(tree: &Tree, out: &Path) -> Result<PathBuf, String> {
    let files = tree.files()?;
    let mut names: Vec<String> = FOLDERS.iter().map(|folder| format!("{folder}/")).collect();
    for file in &files {
        let parents = file.match_indices('/').map(|(at, _)| file[..=at].to_owned());
        names.extend(parents);
    }
    names.extend(files);
    names.sort();
    names.dedup();
    let mut zip = Zip::new(epoch());
    let base = base();
    zip.folder(&format!("{base}/"))?;
    for name in names {
        let full = format!("{base}/{name}");
        match name.ends_with('/') {
            true => zip.folder(&full)?,
            false => {
                let path = tree.root().join(&name);
                let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
                zip.file(&full, &bytes)?;
            }
        }
    }
    let to = out.join(format!("{base}.zip"));
    zip.write(&to)?;
    Ok(to)
}

/// The installer; nothing where its maker is missing.
fn installer(root: &Path, tree: &Tree, out: &Path) -> Result<Option<PathBuf>, String> {
    if !crate::child::quiet(windows::tool(root, "makensis").arg("-VERSION")) {
        return Ok(None);
    }
    let absolute = |p: &Path| std::path::absolute(p).map_err(|e| format!("{}: {e}", p.display()));
    let to = absolute(&out.join(format!("{}-setup.exe", base())))?;
    let mut command = windows::tool(root, "makensis");
    command.args(["-V2", "-NOCD"]).arg(format!("-DVERSION={VERSION}"));
    command.arg(format!("-DSTAGE={}", absolute(tree.root())?.display()));
    command.arg(format!("-DOUT={}", to.display())).arg(root.join("packaging/windows/weir.nsi"));
    deb::run(command.env("SOURCE_DATE_EPOCH", deb::epoch()))?;
    Ok(Some(to))
}

/// Three files, as winget's list of packages has them.
fn manifests(zip: &Path, url: &str, out: &Path) -> Result<Vec<PathBuf>, String> {
    let sum = deb::run(Command::new("sha256sum").arg(zip))?;
    let sum = sum.split_whitespace().next().unwrap_or_default().to_uppercase();
    let tree = Tree::new(&out.join("winget"))?;
    let place = format!("manifests/w/Weir/Weir/{VERSION}/{NAME}");
    [
        (".yaml", "version", version()),
        (".installer.yaml", "installer", installers(url, &sum)),
        (".locale.en-US.yaml", "defaultLocale", locale()),
    ]
    .into_iter()
    .map(|(end, kind, text)| {
        let text = format!(
            "# yaml-language-server: $schema=https://aka.ms/winget-manifest.{kind}.{SCHEMA}.schema.json\n\n\
             PackageIdentifier: {NAME}\nPackageVersion: {VERSION}\n{text}\
             ManifestType: {kind}\nManifestVersion: {SCHEMA}\n"
        );
        tree.write(&format!("{place}{end}"), text, 0o644)
    })
    .collect()
}

fn version() -> String {
    "DefaultLocale: en-US\n".to_owned()
}

/// The folder itself is on the path: the program looks for its configuration beside it.
fn installers(url: &str, sum: &str) -> String {
    let base = base();
    format!(
        "\
Platform:
- Windows.Desktop
MinimumOSVersion: 10.0.0.0
InstallerType: zip
NestedInstallerType: portable
NestedInstallerFiles:
- RelativeFilePath: {base}\\weir.exe
  PortableCommandAlias: weir
ArchiveBinariesDependOnPath: true
Commands:
- weir
Installers:
- Architecture: x64
  InstallerUrl: {url}/{base}.zip
  InstallerSha256: {sum}
"
    )
}

fn locale() -> String {
    "\
PackageLocale: en-US
Publisher: The Weir project
PackageName: Weir
License: Apache-2.0
ShortDescription: Web server and reverse proxy that reads nginx.conf
Description: Weir has nginx's language, behaviour and manners in a memory-safe program.
Tags:
- http
- nginx
- proxy
- server
- web
"
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::tests::{binary, skip};

    /// All of it, of a program that is none.
    fn made(dir: &Path) -> Vec<u8> {
        let program = dir.join("weir.exe");
        fs::create_dir_all(dir).unwrap();
        fs::write(&program, "MZ").unwrap();
        let tree = staged(&crate::root(), &program, dir).unwrap();
        fs::read(zipped(&tree, dir).unwrap()).unwrap()
    }

    #[test]
    fn the_zip_has_all_and_is_the_same_each_time() {
        let dir = std::env::temp_dir().join(format!("weir-windows-{}", std::process::id()));
        let (one, two) = (made(&dir.join("one")), made(&dir.join("two")));
        assert!(one == two);
        let has = |name: &str| {
            let name = format!("{}/{name}", base());
            one.windows(name.len()).any(|w| w == name.as_bytes())
        };
        for name in ["weir.exe", "conf/nginx.conf", "conf/mime.types", "html/", "logs/", "temp/"] {
            assert!(has(name), "{name}");
        }
        let stage = dir.join("one/stage/weir-windows");
        let readme = fs::read_to_string(stage.join("README.txt")).unwrap();
        assert!(readme.contains(VERSION) && !readme.contains('@'));
        assert_eq!(readme.matches('\n').count(), readme.matches("\r\n").count());
        for folder in FOLDERS {
            fs::create_dir_all(stage.join(folder)).unwrap();
        }
        match binary() {
            None => skip("there is no built program"),
            Some(weir) => {
                let said = Command::new(weir).arg("-t").arg("-p").arg(&stage).output().unwrap();
                assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
            }
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_manifests_name_the_zip() {
        let dir = std::env::temp_dir().join(format!("weir-winget-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let zip = dir.join("a.zip");
        fs::write(&zip, "abc").unwrap();
        let made = manifests(&zip, "https://a.example/b", &dir).unwrap();
        let text = fs::read_to_string(&made[1]).unwrap();
        // Of FIPS 180's example.
        let sum = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
        let line = format!(
            "  InstallerUrl: https://a.example/b/{}.zip\n  InstallerSha256: {sum}\n",
            base()
        );
        assert!(text.contains(&line), "{text}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_installer_is_made() {
        if !crate::child::quiet(windows::tool(&crate::root(), "makensis").arg("-VERSION")) {
            return skip("there is no makensis");
        }
        let dir = std::env::temp_dir().join(format!("weir-nsis-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let program = dir.join("program");
        fs::write(&program, "MZ").unwrap();
        let made = || {
            let tree = staged(&crate::root(), &program, &dir).unwrap();
            fs::read(installer(&crate::root(), &tree, &dir).unwrap().unwrap()).unwrap()
        };
        assert!(made() == made(), "not the same each time");
        fs::remove_dir_all(&dir).unwrap();
    }
}
