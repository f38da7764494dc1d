//! `state` files that cannot be written for a while (a full disk, a directory without the right): what the API has changed
//! stands in them once they can be, without another change, and after a reload and the end of the server.

use std::fs::Permissions;
use std::os::unix::fs::{chown, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use weir_tests::{expect_soon, skip, Response, Server, Setup, Signal};

const NOBODY: u32 = 65534;
const CONF: &str = "user nobody nogroup; error_log %%DIR%%/error.log notice; events {} http {
    client_body_temp_path %%DIR%%/temp;
    keyval_zone zone=z:%%SIZE%% state=%%DIR%%/kept/z.json; keyval $arg_k $v zone=z;
    upstream u { zone u 64k; state %%DIR%%/kept/u.conf; }
    server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 '$v'; }
        location /api { api write=on; allow 127.0.0.1; deny all; } } }";

fn post(server: &Server, path: &str, body: &str) -> Response {
    server.send_json("POST", &format!("/api/9/http/{path}"), body)
}

/// What is changed now is in memory and not in the file, and the answer says so.
fn change_unwritten(server: &Server) {
    for (path, body) in [
        ("keyvals/z", "{\"a\":\"1\"}"),
        ("upstreams/u/servers", "{\"server\":\"127.0.0.1:9\",\"down\":true}"),
    ] {
        let put = post(server, path, body);
        assert_eq!(put.status, 500, "{}", put.text());
        let text = put.text();
        assert!(
            text.contains("\"StateFileError\"") && text.contains("it is tried again"),
            "{text}"
        );
    }
    assert_eq!(server.get("/?k=a").text(), "1");
}

fn is_whole(dir: &Path) -> bool {
    let read = |name: &str| std::fs::read_to_string(dir.join("kept").join(name));
    read("z.json").is_ok_and(|text| text.contains("\"a\":\"1\""))
        && read("u.conf").is_ok_and(|text| text.contains("server 127.0.0.1:9 down;"))
}

/// A directory that the workers may not write in until it is opened to them.
struct Closed(PathBuf);

impl Closed {
    fn new(setup: &Setup) -> Closed {
        let at = setup.dir().join("kept");
        std::fs::create_dir_all(&at).unwrap();
        std::fs::set_permissions(&at, Permissions::from_mode(0o555)).unwrap();
        Closed(at)
    }

    fn open(&self) {
        std::fs::set_permissions(&self.0, Permissions::from_mode(0o755)).unwrap();
        if self.0.metadata().unwrap().uid() == 0 {
            chown(&self.0, Some(NOBODY), None).unwrap();
        }
    }
}

fn told(server: &Server, file: &str) -> usize {
    let end = format!("kept/{file}\" is written again");
    server.error_log().lines().filter(|line| line.contains(&end)).count()
}

#[test]
fn what_could_not_be_written_is_written_by_itself() {
    let setup = Setup::new(CONF).set("SIZE", "64k");
    let closed = Closed::new(&setup);
    let server = setup.start();
    change_unwritten(&server);
    assert!(!is_whole(server.dir()));
    closed.open();
    expect_soon("the files are written", || is_whole(server.dir()));
    expect_soon("it is told", || told(&server, "z.json") == 1 && told(&server, "u.conf") == 1);
    // The next change is as always, and tells nothing more.
    assert_eq!(post(&server, "keyvals/z", "{\"b\":\"2\"}").status, 201);
    assert_eq!((told(&server, "z.json"), told(&server, "u.conf")), (1, 1));
}

#[test]
fn it_is_written_at_a_reload() {
    let setup = Setup::new(CONF).set("SIZE", "64k");
    let closed = Closed::new(&setup);
    let mut server = setup.start();
    change_unwritten(&server);
    closed.open();
    // Another zone, which is read from the file.
    let conf = CONF.replace("location / {", "location /new { return 204; } location / {");
    let peer = server.on(0);
    server.reload(&conf.replace("%%SIZE%%", "1m"), || peer.get("/new").status == 204);
    assert_eq!(server.get("/?k=a").text(), "1");
    assert!(server.get("/api/9/http/upstreams/u/servers").text().contains("127.0.0.1:9"));
}

#[test]
fn it_is_written_at_the_end() {
    for signal in [Signal::Quit, Signal::Term] {
        let setup = Setup::new(CONF).set("SIZE", "64k");
        let closed = Closed::new(&setup);
        let mut server = setup.start();
        change_unwritten(&server);
        closed.open();
        server.signal(signal);
        server.wait_exit();
        assert!(is_whole(server.dir()));
    }
}

#[test]
fn what_is_lost_at_the_end_is_told() {
    let setup = Setup::new(CONF).set("SIZE", "64k");
    let closed = Closed::new(&setup);
    let mut server = setup.start();
    change_unwritten(&server);
    server.signal(Signal::Quit);
    server.wait_exit();
    let log = server.error_log();
    assert!(log.contains("kept/z.json\" cannot be written (13: Permission denied): what"), "{log}");
    closed.open();
}

/// A file system of its own, as small as it must be.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Option<Small> {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=200k,mode=0777", "none"]).arg(at);
        let done = mount.stderr(std::process::Stdio::null()).status();
        done.is_ok_and(|status| status.success()).then(|| Small(at.to_path_buf()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_costs_no_change() {
    let setup = Setup::new(CONF).set("SIZE", "64k");
    let Some(small) = Small::mount(&setup.dir().join("kept")) else {
        return skip("no file system can be mounted here");
    };
    let server = setup.start();
    assert_eq!(post(&server, "keyvals/z", "{\"before\":\"0\"}").status, 201);
    let ballast = small.0.join("ballast");
    // As much as there is room for.
    assert!(std::fs::write(&ballast, vec![b'x'; 1 << 20]).is_err());
    change_unwritten(&server);
    let file = std::fs::read_to_string(small.0.join("z.json")).unwrap();
    assert!(file.contains("before") && !file.contains("\"a\""), "{file}");
    std::fs::remove_file(&ballast).unwrap();
    expect_soon("the files are written", || is_whole(server.dir()));
    expect_soon("it is told", || told(&server, "z.json") == 1 && told(&server, "u.conf") == 1);
    drop(server);
    drop(small);
}
