//! The move as it is done in production: the program under one path is replaced, and USR2 and QUIT
//! bring in the other on the same sockets; from nginx to Weir and back.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use weir_tests::tools::{self, finish};
use weir_tests::{binary, expect_soon, free_port, signal, Peer, Setup, Signal};

const CONF: &str = "USER env LD_LIBRARY_PATH; daemon on; worker_processes 2; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log notice;
    events {} http { access_log off; client_body_temp_path %%DIR%%/tmp/b; proxy_temp_path %%DIR%%/tmp/p;
    fastcgi_temp_path %%DIR%%/tmp/f; uwsgi_temp_path %%DIR%%/tmp/u; scgi_temp_path %%DIR%%/tmp/s;
    server { listen 127.0.0.1:%%PORT%%; location / { return 200 ok; } } }";

/// Whose pid stands in a file.
fn pid_in(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn server_name(peer: &Peer) -> String {
    let r = peer.get("/");
    let name = r.header("Server").unwrap_or_default();
    name.split('/').next().unwrap_or_default().to_string()
}

/// Puts another program in the place of the one that runs, and lets it take over.
fn replace(dir: &Path, program: &Path, peer: &Peer, name: &str) {
    let (path, pid_file) = (dir.join("program"), dir.join("the.pid"));
    let old = pid_in(&pid_file).expect("a pid");
    std::fs::copy(program, dir.join("fresh")).unwrap();
    std::fs::rename(dir.join("fresh"), &path).unwrap();
    signal(old, Signal::Usr2);
    expect_soon("the new program's pid", || pid_in(&pid_file).is_some_and(|pid| pid != old));
    signal(old, Signal::Quit);
    let is_gone = || !Path::new(&format!("/proc/{old}")).exists();
    expect_soon("the old program has ended", is_gone);
    assert_eq!(server_name(peer), name);
}

/// Ends the asking however the test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Asks without a pause until told to stop; every answer counts.
fn ask(peer: &Peer, stop: &AtomicBool, answered: &AtomicU32) {
    while !stop.load(Ordering::SeqCst) {
        assert_eq!(peer.get("/").text(), "ok");
        answered.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn from_nginx_and_back() {
    let Some(nginx) = tools::need("nginx") else { return };
    let port = free_port();
    let setup = Setup::new("").set("PORT", port).file("tmp/there", "");
    let dir = setup.dir().to_path_buf();
    let is_root =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
    let conf = CONF.replace("%%DIR%%", &dir.display().to_string());
    let conf = conf.replace("%%PORT%%", &port.to_string());
    let conf = conf.replace("USER", if is_root { "user root;" } else { "" });
    let setup = setup.file("live.conf", conf);
    std::fs::copy(&nginx.path, dir.join("program")).unwrap();
    let mut command = nginx.command_of(&dir.join("program"));
    command.arg("-p").arg(&dir).arg("-c").arg(dir.join("live.conf"));
    let begun = finish(command.arg("-e").arg(dir.join("error.log")), b"");
    assert_eq!(begun.code, 0, "{}", begun.stderr);
    let peer = Peer::Tcp(port);
    assert_eq!(server_name(&peer), "nginx");
    let (stop, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let asking = scope.spawn(|| ask(&peer, &stop, &answered));
        replace(&dir, &binary(), &peer, "weir");
        replace(&dir, &nginx.path, &peer, "nginx");
        stop.store(true, Ordering::SeqCst);
        asking.join().expect("no request is lost");
    });
    assert!(answered.load(Ordering::SeqCst) > 10);
    signal(pid_in(&dir.join("the.pid")).expect("a pid"), Signal::Term);
    expect_soon("it has ended", || !dir.join("the.pid").exists());
    drop(setup);
}
