//! Whom logs, temporary directories and the pid file belong to when the server has root's rights:
//! who may write a directory does not thereby choose what root does there.

use std::fs::Permissions;
use std::os::unix::fs::{chown, lchown, symlink, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use weir_tests::{expect_soon, skip, wait_for, Setup, Signal, PATIENCE};

const NOBODY: u32 = 65534;
const CONF: &str = "user nobody nogroup; error_log %%DIR%%/error.log notice; events {} http {
    log_format u $uri; access_log %%DIR%%/logs/access.log u;
    client_body_temp_path %%DIR%%/temp/body;
    server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; } } }";

/// Whether there are rights to be misused.
fn is_root(dir: &Path) -> bool {
    dir.metadata().unwrap().uid() == 0
}

fn is_nginx() -> bool {
    weir_tests::binary().ends_with("nginx")
}

fn owner(path: &Path) -> (u32, u32, u32) {
    let m = path.symlink_metadata().unwrap();
    (m.uid(), m.gid(), m.mode() & 0o7777)
}

#[test]
fn a_log_is_its_users_after_it_was_reopened_and_not_before() {
    let setup = Setup::new(CONF);
    if !is_root(setup.dir()) {
        return skip("not root");
    }
    std::fs::create_dir_all(setup.dir().join("temp")).unwrap();
    let server = setup.start();
    let log = server.dir().join("logs/access.log");
    assert_eq!(owner(&log), (0, 0, 0o644));
    std::fs::rename(&log, server.dir().join("logs/old")).unwrap();
    server.signal(Signal::Usr1);
    expect_soon("a new log", || log.exists() && owner(&log).0 == NOBODY);
    assert_eq!(owner(&log), (NOBODY, 0, 0o644));
    assert_eq!(owner(&server.dir().join("logs/old")), (0, 0, 0o644));
    expect_soon("lines go there", || {
        server.get("/new");
        server.read("logs/access.log").contains("/new")
    });
}

#[test]
fn a_group_of_readers_keeps_its_right() {
    let setup = Setup::new(CONF).file("logs/access.log", "");
    if !is_root(setup.dir()) {
        return skip("not root");
    }
    std::fs::create_dir_all(setup.dir().join("temp")).unwrap();
    let log = setup.dir().join("logs/access.log");
    chown(&log, Some(NOBODY), Some(4)).unwrap();
    std::fs::set_permissions(&log, Permissions::from_mode(0o640)).unwrap();
    let server = setup.start();
    server.signal(Signal::Usr1);
    expect_soon("the log is open again", || {
        server.get("/2");
        server.read("logs/access.log").contains("/2")
    });
    assert_eq!(owner(&log), (NOBODY, 4, 0o640));
}

#[test]
fn a_device_stays_roots() {
    if is_nginx() {
        return skip("nginx gives it away");
    }
    let null = Path::new("/dev/null");
    let setup = Setup::new(&CONF.replace("%%DIR%%/logs/access.log u", "/dev/null"));
    std::fs::create_dir_all(setup.dir().join("temp")).unwrap();
    let before = owner(null);
    let server = setup.start();
    server.signal(Signal::Usr1);
    server.signal(Signal::Hup);
    assert!(!wait_for(|| owner(null) != before, PATIENCE / 10), "{:?}", owner(null));
    assert_eq!(server.get("/").text(), "ok");
}

/// The directory of the logs is the workers' user's, who has put links there.
#[test]
fn a_link_does_not_give_roots_files_away() {
    if is_nginx() {
        return skip("nginx follows such links");
    }
    let setup = Setup::new(CONF).file("secret", "root's\n").file("hard", "root's\n");
    if !is_root(setup.dir()) {
        return skip("not root");
    }
    let dir = setup.dir().to_path_buf();
    std::fs::create_dir_all(dir.join("temp")).unwrap();
    std::fs::create_dir_all(dir.join("outside")).unwrap();
    for d in ["logs", "temp"] {
        chown(dir.join(d), Some(NOBODY), None).unwrap();
    }
    symlink(dir.join("outside"), dir.join("temp/body")).unwrap();
    lchown(dir.join("temp/body"), Some(NOBODY), None).unwrap();
    let server = setup.start();
    let log = dir.join("logs/access.log");
    for hard in [false, true] {
        std::fs::remove_file(&log).unwrap();
        match hard {
            true => std::fs::hard_link(dir.join("hard"), &log).unwrap(),
            false => {
                symlink(dir.join("secret"), &log).unwrap();
                lchown(&log, Some(NOBODY), None).unwrap();
            }
        }
        server.signal(Signal::Usr1);
        server.signal(Signal::Hup);
        server.expect_error("reconfiguring");
        assert!(!wait_for(|| owner(&dir.join("secret")).0 != 0, PATIENCE / 10));
        assert_eq!((owner(&dir.join("secret")).0, owner(&dir.join("hard")).0), (0, 0));
    }
    assert_eq!(server.read("secret"), "root's\n");
    assert_eq!(owner(&dir.join("outside")).0, 0);
    server.expect_error("access.log\" failed (40:");
    assert_eq!(server.get("/").text(), "ok");
}

/// A pid file that is a link of another user's is not written through.
#[test]
fn a_pid_file_is_not_written_through_a_link_of_others() {
    if is_nginx() {
        return skip("nginx follows such links");
    }
    let setup = Setup::new("pid logs/the.pid; events {}").file("secret", "root's\n");
    if !is_root(setup.dir()) {
        return skip("not root");
    }
    let dir = setup.dir();
    symlink(dir.join("secret"), dir.join("logs/the.pid")).unwrap();
    lchown(dir.join("logs/the.pid"), Some(NOBODY), None).unwrap();
    let (code, _) = fails_to_start(dir, "pid logs/the.pid; events {}");
    assert_eq!(code, Some(1));
    assert_eq!(std::fs::read_to_string(dir.join("secret")).unwrap(), "root's\n");
}

#[test]
fn logs_and_pid_file_are_readable_whatever_the_umask() {
    let conf = "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log; events {}
        http { server { listen 127.0.0.1:%%PORT_0%%; return 200; } }";
    // nginx opens its log before it sets a umask of its own.
    let strict = if is_nginx() { "022" } else { "077" };
    for umask in ["000", strict] {
        let setup = Setup::new(conf);
        let server = setup.umask(umask).start();
        let mode = |name: &str| owner(&server.dir().join(name)).2;
        assert_eq!((mode("the.pid"), mode("error.log")), (0o644, 0o644), "umask {umask}");
    }
}

/// Who stays where he was started has the umask from there, as nginx has it; directories for temporary files are the
/// server's alone.
#[test]
fn what_is_made_in_the_foreground_obeys_the_umask() {
    let conf = "daemon off; pid %%DIR%%/the.pid; error_log %%DIR%%/own.log; events {}
        http { access_log %%DIR%%/access.log; proxy_temp_path %%DIR%%/temp 1 2; proxy_max_temp_file_size 1m;
        server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; location /long { }
            location /kept { proxy_pass http://127.0.0.1:%%PORT_0%%/long; proxy_store %%DIR%%/stored; } } }";
    for (umask, wanted) in [("027", 0o640), ("022", 0o644)] {
        let server = Setup::new(conf).umask(umask).file("long", vec![b'x'; 100_000]).start();
        assert_eq!(server.get("/kept").status, 200);
        let mode = |name: &str| owner(&server.dir().join(name)).2;
        for name in ["the.pid", "own.log", "access.log"] {
            assert_eq!(mode(name), wanted, "{name}, umask {umask}");
        }
        let dirs = std::fs::read_dir(server.dir().join("temp")).unwrap();
        let dirs: Vec<_> = dirs.map(|dir| owner(&dir.unwrap().path()).2).collect();
        assert!(!dirs.is_empty() && dirs.iter().all(|mode| *mode == 0o700), "{dirs:?}");
    }
}

#[test]
fn a_reload_writes_to_the_logs_that_have_the_names_now() {
    let conf = CONF.replace("user nobody nogroup; ", "");
    let setup = Setup::new(&conf);
    std::fs::create_dir_all(setup.dir().join("temp")).unwrap();
    let server = setup.start();
    let log = server.dir().join("logs/access.log");
    std::fs::rename(&log, server.dir().join("logs/old")).unwrap();
    server.signal(Signal::Hup);
    expect_soon("lines go to the new file", || {
        server.get("/new");
        server.read("logs/access.log").contains("/new")
    });
}

/// A directory on the way to a log is another user's, who has put a link in the place of the next.
#[test]
fn a_link_on_the_way_makes_and_gives_away_nothing_of_roots() {
    if is_nginx() {
        return skip("nginx follows such links");
    }
    let conf = CONF.replace("logs/access.log", "own/sub/x.log").replace("temp/body", "own/sub/t");
    let setup = Setup::new(&conf);
    if !is_root(setup.dir()) {
        return skip("not root");
    }
    let dir = setup.dir().to_path_buf();
    let (own, sub) = (dir.join("own"), dir.join("own/sub"));
    for d in ["own/sub", "root", "theirs"] {
        std::fs::create_dir_all(dir.join(d)).unwrap();
    }
    std::fs::write(dir.join("root/x.log"), "").unwrap();
    for d in [&own, &sub, &dir.join("theirs")] {
        chown(d, Some(NOBODY), None).unwrap();
    }
    let mut server = setup.start();
    let put = |name: &str| {
        let _ = std::fs::rename(&sub, dir.join(format!("own/before-{name}")));
        symlink(dir.join(name), &sub).unwrap();
        lchown(&sub, Some(NOBODY), None).unwrap();
    };
    put("root");
    for file in ["root/x.log", "root/none"] {
        server.signal(Signal::Usr1);
        server.expect_error("own/sub/x.log\" failed (40:");
        assert_eq!(owner(&dir.join("root/x.log")).0, 0, "{file}");
        let _ = std::fs::remove_file(dir.join("root/x.log"));
        std::fs::write(dir.join("root/x.log"), "").unwrap();
    }
    std::fs::remove_file(dir.join("root/x.log")).unwrap();
    server.signal(Signal::Usr1);
    server.signal(Signal::Hup);
    // The serving process that is started again has its directories given to it.
    server.children().iter().for_each(|pid| weir_tests::signal(*pid, Signal::Kill));
    server.expect_error("own/sub/t\" cannot be given");
    assert!(!dir.join("root/x.log").exists());
    let mut made = std::fs::read_dir(dir.join("root")).unwrap().flatten();
    assert!(made.all(|e| owner(&e.path()).0 == 0), "nothing there is given away");
    put("theirs");
    server.signal(Signal::Usr1);
    expect_soon("a log in a directory of his", || dir.join("theirs/x.log").exists());
    assert!(server.is_running());
}

/// What is made at start, for the first time, by the name that the configuration has.
#[test]
fn a_link_on_the_way_leads_nothing_that_is_made_or_removed() {
    if is_nginx() {
        return skip("nginx follows such links");
    }
    let setup = Setup::new(CONF).file("root/the.sock", "root's\n").file("root/the.pid", "");
    if !is_root(setup.dir()) {
        return skip("not root");
    }
    let dir = setup.dir().to_path_buf();
    std::fs::create_dir_all(dir.join("own")).unwrap();
    chown(dir.join("own"), Some(NOBODY), None).unwrap();
    symlink(dir.join("root"), dir.join("own/sub")).unwrap();
    lchown(dir.join("own/sub"), Some(NOBODY), None).unwrap();
    let sub = "%%DIR%%/own/sub";
    for what in [
        format!("client_body_temp_path {sub}/body;"),
        format!("client_body_temp_path {sub}/deep/body;"),
        format!("proxy_temp_path {sub}/proxy;"),
        format!("proxy_cache_path {sub}/cache keys_zone=c:1m;"),
        format!("server {{ location / {{ proxy_pass https://127.0.0.1:1; proxy_ssl_key_log {sub}/keys; }} }}"),
        format!("server {{ listen unix:{sub}/new.sock; }}"),
    ] {
        let conf = format!(
            "pid my.pid; events {{}} http {{ {what} server {{ listen unix:%%DIR%%/my.sock; }} }}"
        ).replace("%%DIR%%", dir.to_str().unwrap());
        let (code, log) = fails_to_start(&dir, &conf);
        assert_eq!(code, Some(1), "{what}: {log}");
        assert!(log.contains("failed (40:") || log.contains("failed (2:"), "{what}: {log}");
        let mut there = std::fs::read_dir(dir.join("root")).unwrap().flatten();
        assert!(there.all(|e| e.path().is_file() && e.file_name() != "keys"), "{what}");
    }
}

/// The socket's and the pid file's directory is moved aside while the server runs.
#[test]
fn a_link_in_the_place_of_a_directory_does_not_remove_roots_files() {
    if is_nginx() {
        return skip("nginx follows such links");
    }
    let conf = "pid %%DIR%%/own/sub/the.pid; events {}
        http { server { listen 127.0.0.1:%%PORT_0%%; listen unix:%%DIR%%/own/sub/the.sock; } }";
    let setup = Setup::new(conf).file("root/the.sock", "").file("root/the.pid", "");
    if !is_root(setup.dir()) {
        return skip("not root");
    }
    let dir = setup.dir().to_path_buf();
    std::fs::create_dir_all(dir.join("own/sub")).unwrap();
    for d in ["own", "own/sub"] {
        chown(dir.join(d), Some(NOBODY), None).unwrap();
    }
    let mut server = setup.start();
    expect_soon("the pid file", || dir.join("own/sub/the.pid").exists());
    std::fs::rename(dir.join("own/sub"), dir.join("own/old")).unwrap();
    symlink(dir.join("root"), dir.join("own/sub")).unwrap();
    lchown(dir.join("own/sub"), Some(NOBODY), None).unwrap();
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    assert!(dir.join("root/the.sock").exists() && dir.join("root/the.pid").exists());
}

/// Starts on a configuration that is to fail; its code, and what it said.
fn fails_to_start(dir: &Path, conf: &str) -> (Option<i32>, String) {
    std::fs::write(dir.join("nginx.conf"), format!("daemon off; {conf}")).unwrap();
    let mut command = std::process::Command::new(weir_tests::binary());
    command.arg("-p").arg(dir).arg("-c").arg(dir.join("nginx.conf"));
    let stderr = std::fs::File::create(dir.join("said")).unwrap();
    let mut child = command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
    let mut code = None;
    wait_for(|| child.try_wait().is_ok_and(|s| s.inspect(|s| code = s.code()).is_some()), PATIENCE);
    if code.is_none() {
        weir_tests::signal(child.id(), Signal::Term);
        let _ = child.wait();
    }
    (code, std::fs::read_to_string(dir.join("said")).unwrap())
}

/// They are made with root's rights, and the workers write to them.
#[test]
fn directories_that_a_reload_makes_are_the_workers() {
    let conf = "user nobody nogroup; error_log %%DIR%%/error.log notice; events {} http { MORE
        server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; }
            location /kept { proxy_pass http://127.0.0.1:%%PORT_0%%/; client_body_buffer_size 1k; CACHE } } }";
    let setup = Setup::new(&conf.replace("MORE", "").replace("CACHE", ""));
    if !is_root(setup.dir()) {
        return skip("not root");
    }
    let mut server = setup.start();
    let more = "proxy_cache_path %%DIR%%/new keys_zone=z:1m; client_body_temp_path %%DIR%%/bodies;";
    let cache = "proxy_cache z; proxy_cache_valid 1m; add_header X-Cache $upstream_cache_status;";
    let peer = server.on(0);
    let new = conf.replace("MORE", more).replace("CACHE", cache);
    server.reload(&new, || peer.get("/kept").header("X-Cache").is_some());
    expect_soon("it is kept", || server.get("/kept").header("X-Cache") == Some("HIT"));
    assert_eq!(owner(&server.dir().join("new")).0, NOBODY);
    assert_eq!(server.post("/kept", &"x".repeat(100_000)).status, 200);
}
