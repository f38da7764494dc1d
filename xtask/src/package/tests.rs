//! The packages, built from the program that is under test, installed in a root that is thrown away:
//! the system's own, with every change in memory (an overlay, in name spaces of its own).

mod moved;
mod stops;
mod systemd;

use super::*;
use std::ffi::OsString;
use std::io::Write;
use std::process::Output;
use std::sync::OnceLock;

/// What the scripts of the test have in common.
const HELPERS: &str = r#"
set -eu
step() { echo "step: $*"; }
# Until a command succeeds; some 30 s at the most.
until_ok() {
    for try in $(seq 600); do if "$@" >/dev/null 2>&1; then return 0; fi; sleep 0.05; done
    echo "never: $*"; exit 1
}
get() {
    exec 3<>"/dev/tcp/127.0.0.1/$PORT"
    printf 'GET / HTTP/1.0\r\nHost: a\r\n\r\n' >&3
    cat <&3
    exec 3>&-
}
says() { get | grep -q "$1"; }
logs_anew() { get && test -s /var/log/weir/access.log; }
gone() { ! kill -0 "$1"; }
fails() { if "$@" >/dev/null 2>&1; then echo "did not fail: $*"; exit 1; fi; }
title() { tr '\0' ' ' < "/proc/$1/cmdline"; }
limit() { grep -q "Max open files  *$2 " "/proc/$1/limits"; }
other() { test -s "$1" && test "$(cat "$1")" != "$2"; }
state() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true; }
# Whether a package may start something is the administrator's to say.
nothing_starts() {
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
}
# Without an init invoke-rc.d starts nothing.
all_starts() {
    rm -f /usr/sbin/policy-rc.d
    runlevel=$(command -v runlevel || echo /sbin/runlevel)
    rm -f "$runlevel"
    printf '#!/bin/sh\necho N 2\n' > "$runlevel"
    chmod 755 "$runlevel"
}
# The pages of the system are not read again each time.
ln -sf true /usr/bin/mandb
"#;

pub(super) fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    // Past cargo's capture, as the counting of skipped tests wants it.
    let _ = std::io::stdout().write_all(line.as_bytes());
}

pub(super) fn binary() -> Option<PathBuf> {
    let told = std::env::var_os("WEIR_BIN").map(PathBuf::from);
    let target = cargo::target(&crate::root());
    let built = ["release/weir", "debug/weir"].map(|p| target.join(p));
    told.into_iter().chain(built).find(|p| p.exists())
}

fn has(program: &str) -> bool {
    crate::child::quiet(Command::new(program).arg("--version"))
}

/// The packages, in a directory that goes with this.
struct Made {
    dir: PathBuf,
    binary: PathBuf,
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn made(name: &str) -> Option<Made> {
    let Some(binary) = binary() else {
        skip("there is no built program");
        return None;
    };
    let said = Command::new(&binary).arg("-v").output().unwrap();
    if !String::from_utf8_lossy(&said.stderr).contains("(weir/") || !has("dpkg-deb") {
        skip("it takes dpkg-deb and a program that is Weir");
        return None;
    }
    let dir = std::env::temp_dir().join(format!("weir-package-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    Some(Made { dir, binary })
}

/// The packages, put together once for all tests, in the directory of this one; and their tarball.
fn packed(made: &Made) {
    static FILES: OnceLock<Vec<(OsString, Vec<u8>)>> = OnceLock::new();
    let files = FILES.get_or_init(|| {
        let (mut paths, weir) =
            pack(&crate::root().join("packaging"), &made.binary, &made.dir).unwrap();
        paths.push(deb::tarball(&weir, &made.dir).unwrap());
        let read = |p: &PathBuf| (p.file_name().unwrap().to_owned(), fs::read(p).unwrap());
        paths.iter().map(read).collect()
    });
    for (name, bytes) in files {
        fs::write(made.dir.join(name), bytes).unwrap();
    }
}

/// The commands of a unit, by their key.
fn commands(unit: &str, key: &str) -> String {
    let text = fs::read_to_string(crate::root().join("packaging").join(unit)).unwrap();
    let found: Vec<&str> =
        text.lines().filter_map(|l| l.strip_prefix(key)?.strip_prefix('=')).collect();
    assert!(!found.is_empty(), "{unit} has no {key}");
    // A dash says that the failure of a command is none of the unit.
    found.iter().map(|c| c.trim_start_matches('-')).collect::<Vec<_>>().join("\n")
}

/// What logrotate runs after it has renamed the files.
fn postrotate(file: &str) -> String {
    let text = fs::read_to_string(crate::root().join("packaging").join(file)).unwrap();
    let script = text.split_once("postrotate\n").unwrap().1;
    script.split_once("endscript").unwrap().0.to_owned()
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs a script as root of such a system; `None` where that is not allowed.
fn in_a_root(dir: &Path, script: &str) -> Option<Output> {
    in_name_spaces(dir, &["-m", "-p"], script)
}

fn in_name_spaces(dir: &Path, spaces: &[&str], script: &str) -> Option<Output> {
    let at = dir.display();
    let source = crate::root();
    let source = source.display();
    let enter = format!(
        "set -e; r={at}/root; mkdir $r; mount -t tmpfs tmpfs $r; mkdir $r/up $r/work $r/new
         mount -t overlay overlay -o lowerdir=/,upperdir=$r/up,workdir=$r/work $r/new; n=$r/new
         mount --rbind /dev $n/dev; mount -t proc proc $n/proc; mount -t tmpfs tmpfs $n/run
         mkdir $n/run/lock $n/run/made $n/run/source
         mount --bind {at} $n/run/made; mount --bind {source} $n/run/source
         if test \"$1\" = try; then exit 0; fi; exec chroot $n /bin/bash /run/made/script"
    );
    fs::write(dir.join("enter"), enter).unwrap();
    fs::write(dir.join("script"), format!("{HELPERS}{script}")).unwrap();
    let enter = |what: &str| {
        let mut command = Command::new("unshare");
        command.args(spaces).args(["-f", "--kill-child", "sh"]).arg(dir.join("enter")).arg(what);
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("PORT", free_port().to_string()).env("LC_ALL", "C").output()
    };
    let may = enter("try").is_ok_and(|o| o.status.success());
    let _ = fs::remove_dir(dir.join("root"));
    if !may {
        skip("it takes root, unshare and overlays");
        return None;
    }
    Some(enter("run").unwrap())
}

#[track_caller]
fn succeeded(output: Option<Output>) {
    let Some(output) = output else { return };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.ends_with("step: done\n"), "{out}\n{err}");
}

#[test]
fn packages_are_installed_and_their_units_run() {
    let Some(made) = made("units") else { return };
    packed(&made);
    let mut tarball = fs::read_dir(&made.dir).unwrap().flatten().map(|e| e.path());
    let tarball = tarball.find(|p| p.extension().is_some_and(|e| e == "gz")).unwrap();
    let listed = deb::run(Command::new("tar").arg("-tf").arg(tarball)).unwrap();
    let ends = |end: &str| listed.lines().any(|l| l.ends_with(end));
    assert!(ends("/usr/sbin/weir") && ends("/etc/weir/weir.conf") && !ends("/control"), "{listed}");
    let script = r#"
all_starts
step install
dpkg -i /run/made/weir_*.deb
test ! -e /run/weir.pid
fails ls /etc/rc2.d/S*weir
update-rc.d weir enable
ls /etc/rc2.d/S*weir
cat >> /etc/default/weir <<'END'
DAEMON_OPTS="-e /var/log/weir/early.log"
ULIMIT="-n 3000"
STOP_SCHEDULE="QUIT/30/KILL/5"
END
sed -i "s/listen 80 /listen 127.0.0.1:$PORT /" /etc/weir/conf.d/default.conf
step unit
. @DEFAULTS@
@PRE@
@START@
until_ok test -s /run/weir.pid
pid=$(cat /run/weir.pid)
until_ok says 'Weir is running'
title $pid | grep -q '^weir: master process /usr/sbin/weir -c /etc/weir/weir.conf.* -e /var/log/weir/early.log'
echo 'return 200 changed;' > /etc/weir/one.conf
sed -i 's|server_name _;|include one.conf;|' /etc/weir/conf.d/default.conf
@RELOAD@
until_ok says changed
test "$(cat /run/weir.pid)" = "$pid"
step rotation
test "$(stat -c %a:%U:%G /var/log/weir/access.log /var/log/weir/error.log | sort -u)" = 640:www-data:adm
mv /var/log/weir/access.log /var/log/weir/access.log.1
@ROTATE@
until_ok logs_anew
if command -v logrotate; then logrotate -df /etc/logrotate.d/weir; fi
step stop
@STOP@
gone $pid
test ! -e /run/weir.pid
step script
/etc/init.d/weir start
until_ok /etc/init.d/weir status
pid=$(cat /run/weir.pid)
limit $pid 3000
title $pid | grep -q -- '-e /var/log/weir/early.log'
/etc/init.d/weir reload
says changed
mv /var/log/weir/access.log /var/log/weir/access.log.2
/etc/init.d/weir rotate
until_ok logs_anew
pid=$(cat /run/weir.pid)
/etc/init.d/weir upgrade
test "$(cat /run/weir.pid)" != "$pid"
until_ok gone $pid
says changed
step update
pid=$(cat /run/weir.pid)
dpkg -i /run/made/weir_*.deb
until_ok gone $pid
other /run/weir.pid $pid
says changed
nothing_starts
pid=$(cat /run/weir.pid)
dpkg -i /run/made/weir_*.deb
test "$(cat /run/weir.pid)" = "$pid"
/etc/init.d/weir stop
fails /etc/init.d/weir status
test -z "$(find /etc -name '*temp*' -newer /run/made/script)"
step nginx
dpkg -i /run/made/weir-nginx-common_*.deb /run/made/weir-nginx_*.deb
test ! -e /run/nginx.pid
sed -i "s/listen 80 /listen 127.0.0.1:$PORT /" /etc/nginx/conf.d/default.conf
nginx -t
nginx -V 2>&1 | grep -q -- '--conf-path=/etc/nginx/nginx.conf'
printf '%s\n' 'DAEMON_OPTS="-e /var/log/nginx/early.log"' 'ULIMIT="-n 3000"' >> /etc/default/nginx
. @NDEFAULTS@
@NPRE@
@NSTART@
until_ok says 'Weir is running'
title $(cat /run/nginx.pid) | grep -q '^nginx: master process /usr/sbin/nginx.* -e /var/log/nginx/early.log'
@NRELOAD@
@NSTOP@
test ! -e /run/nginx.pid
service nginx start
until_ok service nginx status
title $(cat /run/nginx.pid) | grep -q '^nginx: master process /usr/sbin/nginx.* -e /var/log/nginx/early.log'
limit $(cat /run/nginx.pid) 3000
step remove
all_starts
pid=$(cat /run/nginx.pid)
dpkg -r weir-nginx
gone $pid
test ! -e /usr/sbin/nginx -a -e /etc/nginx/nginx.conf
dpkg -P weir-nginx-common
test ! -e /etc/init.d/nginx -a -e /etc/nginx/nginx.conf
fails ls /etc/rc2.d/*nginx
/etc/init.d/weir start
until_ok test -s /run/weir.pid
pid=$(cat /run/weir.pid)
rm /etc/weir/one.conf
dpkg -P weir
until_ok gone $pid
test ! -e /etc/weir -a ! -e /var/lib/weir
fails ls /etc/rc2.d/*weir
step done
"#;
    let mut script = script.replace("@ROTATE@", &postrotate("weir.logrotate"));
    for (unit, start) in [("weir.service", "@"), ("nginx.service", "@N")] {
        for (place, key) in [
            ("PRE", "ExecStartPre"),
            ("START", "ExecStart"),
            ("RELOAD", "ExecReload"),
            ("STOP", "ExecStop"),
            ("DEFAULTS", "EnvironmentFile"),
        ] {
            script = script.replace(&format!("{start}{place}@"), &commands(unit, key));
        }
    }
    succeeded(in_a_root(&made.dir, &script));
}

#[test]
fn units_are_what_systemd_reads() {
    let Some(made) = made("verify") else { return };
    if !has("systemd-analyze") {
        return skip("there is no systemd-analyze");
    }
    for unit in ["weir.service", "nginx.service"] {
        // The programs it names must be there.
        let text = fs::read_to_string(crate::root().join("packaging").join(unit)).unwrap();
        let here = made.binary.display().to_string();
        let text = text.replace("/usr/sbin/weir", &here).replace("/usr/sbin/nginx", &here);
        let text: String = text
            .lines()
            .filter(|l| !l.starts_with("Documentation"))
            .map(|l| format!("{l}\n"))
            .collect();
        let file = made.dir.join(unit);
        fs::write(&file, text).unwrap();
        if unit == "nginx.service" {
            let beside = made.dir.join("nginx.service.d");
            fs::create_dir_all(&beside).unwrap();
            let from = crate::root().join("packaging/nginx.service.d.conf");
            fs::copy(from, beside.join("weir.conf")).unwrap();
        }
        let said = Command::new("systemd-analyze").arg("verify").arg(&file).output().unwrap();
        let errors = String::from_utf8_lossy(&said.stderr);
        if errors.contains("Failed to initialize manager") {
            return skip("systemd-analyze does not run here");
        }
        let about: Vec<&str> =
            errors.lines().filter(|l| l.contains(unit) || l.contains("weir.conf")).collect();
        assert!(said.status.success() && about.is_empty(), "{errors}");
    }
}

#[test]
fn manual_pages_have_no_mistakes() {
    let Some(made) = made("manual") else { return };
    if !has("man") {
        return skip("there is no man");
    }
    let template = fs::read_to_string(crate::root().join("packaging/weir.8.in")).unwrap();
    for (name, text, word) in [
        ("weir.8", man::program(&template, &made.binary).unwrap(), "--strict"),
        ("weir.conf.5", man::directives(&made.binary).unwrap(), "client_max_body_size"),
    ] {
        let file = made.dir.join(name);
        fs::write(&file, &text).unwrap();
        let mut command = Command::new("man");
        command.args(["--warnings", "-E", "UTF-8", "-l"]).arg(&file);
        let said = command.env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8").output().unwrap();
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() && errors.is_empty(), "{name}: {errors}");
        let page = String::from_utf8_lossy(&said.stdout);
        assert!(page.contains(word), "{name} does not speak of {word}");
        // Those of the templates are words between two of these signs.
        let mut between = text.split('@').skip(1);
        let is_word =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_uppercase() || c == '_');
        assert!(!between.any(is_word), "{name}: a placeholder is left");
    }
}

/// Instructions with their words, continued lines joined.
fn dockerfile() -> Vec<(String, String)> {
    let text = fs::read_to_string(crate::root().join("packaging/docker/Dockerfile")).unwrap();
    let text = text.lines().filter(|l| !l.starts_with('#')).collect::<Vec<_>>().join("\n");
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().filter(|l| !l.trim().is_empty());
    lines
        .map(|l| {
            let (word, rest) = l.split_once(' ').expect("an instruction and its words");
            (word.to_owned(), rest.split_whitespace().collect::<Vec<_>>().join(" "))
        })
        .collect()
}

/// `["weir", "-c", "x"]`
fn words(json: &str) -> Vec<String> {
    json.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_dockerfile_is_sound() {
    const KNOWN: [&str; 9] =
        ["FROM", "WORKDIR", "COPY", "ENV", "RUN", "USER", "EXPOSE", "STOPSIGNAL", "CMD"];
    let root = crate::root();
    let layout = fs::read_to_string(root.join("crates/module/src/layout.rs")).unwrap();
    let all = dockerfile();
    let last = |name: &str| all.iter().rfind(|(n, _)| n == name).map(|(_, rest)| rest.as_str());
    for (name, rest) in &all {
        assert!(KNOWN.contains(&name.as_str()), "{name}");
        if name == "COPY" && !rest.starts_with("--from=") {
            let source = rest.split(' ').next().unwrap();
            assert!(root.join(source).exists(), "{source}");
        }
        for variable in rest.split(' ').filter(|_| name == "ENV") {
            let (variable, _) = variable.split_once('=').unwrap();
            assert!(layout.contains(&format!("\"{variable}\"")), "{variable} sets nothing");
        }
    }
    assert_eq!(last("STOPSIGNAL"), Some("SIGQUIT"));
    assert!(last("USER").is_some_and(|u| u != "root" && u != "0"));
    for (variable, _) in LAYOUT {
        assert!(layout.contains(&format!("\"{variable}\"")), "{variable} sets nothing");
    }
    let Some(binary) = binary() else { return skip("there is no built program") };
    let command = words(last("CMD").unwrap());
    let said = Command::new(binary).args(&command[1..]).arg("-h").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

/// The last stage's steps, and then its command as its user.
#[test]
fn the_steps_of_the_dockerfile_make_a_server() {
    let Some(made) = made("docker") else { return };
    fs::copy(&made.binary, made.dir.join("weir")).unwrap();
    let all = dockerfile();
    let stage = all.iter().rposition(|(name, _)| name == "FROM").unwrap();
    let mut script = String::from("step docker\ncd /\n");
    let (mut user, mut command) = ("root", Vec::new());
    for (name, rest) in &all[stage + 1..] {
        match name.as_str() {
            "COPY" => {
                let (from, to) = rest.rsplit_once(' ').unwrap();
                let from = match from.strip_prefix("--from=build ") {
                    Some(_) => "/run/made/weir".to_owned(),
                    None => format!("/run/source/{from}"),
                };
                // Of a directory the contents are copied.
                script.push_str(&format!("mkdir -p $(dirname {to})\ncp -rT {from} {to}\n"));
            }
            "RUN" => script.push_str(&format!("{rest}\n")),
            "USER" => user = rest,
            "CMD" => command = words(rest),
            _ => {}
        }
    }
    let command: Vec<String> = command.iter().map(|w| format!("'{w}'")).collect();
    script.push_str(&format!(
        "sed -i \"s/listen 8080 /listen 127.0.0.1:$PORT /\" /etc/weir/conf.d/default.conf
step serve
# Where a program that was not built for the image has its temporary files.
install -d -o {user} /usr/local/weir
touch /run/out; chmod 666 /run/out
setpriv --reuid {user} --regid {user} --clear-groups {} > /run/out 2>&1 &
pid=$!
trap 'cat /run/out' EXIT
until_ok says 'Weir is running'
until_ok grep -q 'GET / HTTP/1.0' /run/out
trap - EXIT
test \"$(cat /run/weir/weir.pid)\" = $pid
kill -QUIT $pid
wait $pid
step done\n",
        command.join(" ")
    ));
    succeeded(in_a_root(&made.dir, &script));
}

/// The variables are read when the paths are compiled; a whole build of the program would say no more.
#[test]
fn the_packaged_program_knows_its_paths() {
    let dir = std::env::temp_dir().join(format!("weir-package-paths-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (source, program) = (dir.join("main.rs"), dir.join("main"));
    let layout = crate::root().join("crates/module/src/layout.rs");
    let main = format!(
        "#[path = {layout:?}]\nmod layout;\nfn main() {{\n\
         layout::Layout::here().configure_arguments().iter().for_each(|a| println!(\"{{a}}\"));\n}}\n"
    );
    fs::write(&source, main).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    // What of it this program does not use is used by others.
    command.args(["--edition", "2021", "--cap-lints", "allow", "-o"]).arg(&program).arg(&source);
    deb::run(command.envs(LAYOUT.iter().copied())).unwrap();
    let shown = deb::run(&mut Command::new(&program)).unwrap();
    let _ = fs::remove_dir_all(&dir);
    for (variable, value) in LAYOUT {
        let option = variable.trim_start_matches("WEIR_").to_lowercase().replace('_', "-");
        let line = format!("--{option}={value}");
        assert!(shown.lines().any(|l| l == line), "{line} is not in\n{shown}");
    }
}
