//! `cargo xtask package`: Debian packages, and a tarball of the same files.
//!
//! The packages are put together by `dpkg-deb` itself: wherever a package is of use it is there, it
//! writes what `dpkg` reads by definition, and it needs no list of build dependencies as debhelper
//! would. Everything that is packed is in `packaging/`, or comes from the program: the manual pages are
//! made from `weir -h` and `weir help`.
//!
//! * `weir`: program, unit, logs' rotation, configuration in `/etc/weir`, manual, completions.
//! * `weir-nginx`: makes the program `nginx` Weir. It is to `nginx-common` what Debian's own packages of
//!   nginx are: configuration, unit and script stay that package's, which cannot go while this is there.
//! * `weir-nginx-common`: these files where there is no `nginx-common`.
//!
//! `cargo xtask package windows` makes what is for Windows.

mod deb;
mod man;
#[cfg(test)]
mod tests;
mod windows;
mod zip;

use crate::{cargo, release};
use deb::{Package, Tree};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the packaged program looks, in place of `/usr/local/weir`.
const LAYOUT: &[(&str, &str)] = &[
    ("WEIR_PREFIX", "/usr/share/weir"),
    ("WEIR_MODULES_PATH", "/usr/lib/weir/modules"),
    ("WEIR_CONF_PATH", "/etc/weir/weir.conf"),
    ("WEIR_ERROR_LOG_PATH", "/var/log/weir/error.log"),
    ("WEIR_HTTP_LOG_PATH", "/var/log/weir/access.log"),
    ("WEIR_PID_PATH", "/run/weir.pid"),
    ("WEIR_LOCK_PATH", "/run/lock/weir.lock"),
    ("WEIR_HTTP_CLIENT_BODY_TEMP_PATH", "/var/lib/weir/body"),
    ("WEIR_HTTP_PROXY_TEMP_PATH", "/var/lib/weir/proxy"),
    ("WEIR_HTTP_FASTCGI_TEMP_PATH", "/var/lib/weir/fastcgi"),
    ("WEIR_HTTP_UWSGI_TEMP_PATH", "/var/lib/weir/uwsgi"),
    ("WEIR_HTTP_SCGI_TEMP_PATH", "/var/lib/weir/scgi"),
    ("WEIR_USER", "www-data"),
];

/// Packages that have a program `nginx`. Not `nginx-common`: once removed it would still be known, and its
/// purge would delete the configuration that is served.
const REPLACED: &str = "nginx, nginx-core, nginx-light, nginx-full, nginx-extras";

/// `--binary FILE` packs a program that is built already, `--plain` builds one without a profile; `--out DIR`
/// says where everything goes.
pub fn run(root: &Path, mut words: &[&str]) -> Result<(), String> {
    if let ["windows", rest @ ..] = words {
        return windows::run(root, rest);
    }
    let mut out = cargo::target(root).join("package");
    let (mut binary, mut plain) = (None, false);
    loop {
        words = match words {
            [] => break,
            ["--binary", file, rest @ ..] => {
                binary = Some(PathBuf::from(file));
                rest
            }
            ["--out", dir, rest @ ..] => {
                out = PathBuf::from(dir);
                rest
            }
            ["--plain", rest @ ..] => {
                plain = true;
                rest
            }
            [other, ..] => return Err(format!("unknown option of package: {other}")),
        };
    }
    fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let binary = match binary {
        Some(binary) => binary,
        // A program that knows its paths, in a directory of its own beside the usual builds.
        None => release::build(root, &cargo::target(root).join("packaged"), LAYOUT, plain)?,
    };
    let (mut made, weir) = pack(&root.join("packaging"), &binary, &out)?;
    made.push(deb::tarball(&weir, &out)?);
    for made in made {
        println!("{}", made.display());
    }
    Ok(())
}

/// The Debian packages, and the files of the first.
fn pack(from: &Path, binary: &Path, out: &Path) -> Result<(Vec<PathBuf>, Tree), String> {
    let weir = Tree::new(&out.join("stage/weir"))?;
    let packed = program(&weir, binary)?;
    weir_files(&weir, from, binary)?;
    let nginx = Tree::new(&out.join("stage/weir-nginx"))?;
    nginx_files(&nginx, from)?;
    let common = Tree::new(&out.join("stage/weir-nginx-common"))?;
    common_files(&common, from)?;
    let depends = deb::libraries(&packed)?;
    let packages = [
        Package {
            name: "weir",
            depends,
            more: "Suggests: logrotate\nProvides: httpd\n".into(),
            summary: "web server and reverse proxy that reads nginx.conf",
            text: "Weir has nginx's language, behaviour and manners in a memory-safe program.",
            tree: weir,
        },
        in_place_of_nginx(nginx),
        common_to_nginx(common),
    ];
    let mut made = Vec::new();
    for package in &packages {
        package.scripts(&from.join("debian"))?;
        made.push(package.build(out)?);
    }
    let [weir, ..] = packages;
    Ok((made, weir.tree))
}

fn in_place_of_nginx(tree: Tree) -> Package {
    let version = deb::VERSION;
    Package {
        name: "weir-nginx",
        depends: format!("weir (= {version}), nginx-common | weir-nginx-common (= {version})"),
        more: format!(
            "Provides: nginx, httpd, httpd-cgi\nConflicts: {REPLACED}\nReplaces: {REPLACED}\n"
        ),
        summary: "Weir in the place of nginx",
        text: "The program nginx is Weir, with the configuration that is in /etc/nginx.",
        tree,
    }
}

fn common_to_nginx(tree: Tree) -> Package {
    Package {
        name: "weir-nginx-common",
        depends: format!("weir (= {})", deb::VERSION),
        // The package `nginx` of nginx's makers has these files too. (One from Debian has not.) In the place
        // of `nginx-common` it cannot come unasked: that would leave it removed, to be purged some day.
        more: "Conflicts: nginx-common\nReplaces: nginx\n".into(),
        summary: "unit, script and first configuration of weir-nginx",
        text: "It is for systems without nginx-common, whose files weir-nginx uses otherwise.",
        tree,
    }
}

/// Without the lines of source that only a debugger asks for, where `strip` is there.
fn program(tree: &Tree, binary: &Path) -> Result<PathBuf, String> {
    let to = tree.copy(binary, "usr/sbin/weir", 0o755)?;
    let _ = crate::child::quiet(Command::new("strip").arg("--strip-debug").arg(&to));
    Ok(to)
}

fn weir_files(tree: &Tree, from: &Path, binary: &Path) -> Result<(), String> {
    for (file, to) in [
        ("conf/weir.conf", "etc/weir/weir.conf"),
        ("conf/mime.types", "etc/weir/mime.types"),
        ("conf/conf.d/default.conf", "etc/weir/conf.d/default.conf"),
        ("weir.logrotate", "etc/logrotate.d/weir"),
        ("default", "etc/default/weir"),
        ("html/index.html", "usr/share/weir/html/index.html"),
        ("weir.service", "usr/lib/systemd/system/weir.service"),
        ("completions/weir.bash", "usr/share/bash-completion/completions/weir"),
        ("completions/_weir", "usr/share/zsh/vendor-completions/_weir"),
        ("completions/weir.fish", "usr/share/fish/vendor_completions.d/weir.fish"),
        ("../LICENSE", "usr/share/doc/weir/copyright"),
    ] {
        tree.copy(&from.join(file), to, 0o644)?;
    }
    tree.copy(&from.join("weir.init"), "etc/init.d/weir", 0o755)?;
    let template = fs::read_to_string(from.join("weir.8.in")).map_err(|e| e.to_string())?;
    tree.manual("usr/share/man/man8/weir.8", &man::program(&template, binary)?)?;
    tree.manual("usr/share/man/man5/weir.conf.5", &man::directives(binary)?)
}

fn nginx_files(tree: &Tree, from: &Path) -> Result<(), String> {
    let place = "usr/lib/systemd/system/nginx.service.d/weir.conf";
    tree.copy(&from.join("nginx.service.d.conf"), place, 0o644)?;
    tree.copy(&from.join("../LICENSE"), "usr/share/doc/weir-nginx/copyright", 0o644)?;
    tree.link("weir", "usr/sbin/nginx")?;
    tree.link("weir.8.gz", "usr/share/man/man8/nginx.8.gz")?;
    tree.link("weir", "usr/share/bash-completion/completions/nginx")
}

fn common_files(tree: &Tree, from: &Path) -> Result<(), String> {
    let share = "usr/share/weir/nginx";
    let conf = fs::read_to_string(from.join("conf/weir.conf")).map_err(|e| e.to_string())?;
    let conf = conf.replace("/run/weir.pid", "/run/nginx.pid").replace("/log/weir/", "/log/nginx/");
    tree.write(&format!("{share}/nginx.conf"), &conf, 0o644)?;
    for (file, to) in [
        ("conf/mime.types", "usr/share/weir/nginx/mime.types"),
        ("conf/conf.d/default.conf", "usr/share/weir/nginx/conf.d/default.conf"),
        ("nginx.service", "usr/share/weir/nginx/nginx.service"),
        ("nginx.service", "usr/lib/systemd/system/nginx.service"),
        ("nginx.logrotate", "etc/logrotate.d/nginx"),
        ("default", "etc/default/nginx"),
        ("../LICENSE", "usr/share/doc/weir-nginx-common/copyright"),
    ] {
        tree.copy(&from.join(file), to, 0o644)?;
    }
    tree.copy(&from.join("nginx.init"), "etc/init.d/nginx", 0o755).map(drop)
}
