//! A file that is kept in memory is the file on disk: its text, and who may read it.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use weir_tests::{skip, Server, Setup};

const OLD: Duration = Duration::from_secs(1_000_000_000);

/// New text in the same file, of the same length and with the same time of modification.
fn rewrite(path: &Path, text: &str) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + OLD)).unwrap();
}

fn start(http: &str) -> Server {
    Setup::new(&format!(
        "%%USER%% events {{}} http {{ {http}
            server {{ listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; }} }}"
    ))
    .set("USER", "")
    .file("html/f", "text 0")
    .start()
}

#[test]
fn new_text_of_the_same_size_and_time_is_sent() {
    for http in ["", "gzip_static always;", "open_file_cache max=10; open_file_cache_valid 0;"] {
        let server = start(http);
        let path = server.dir().join("html/f");
        for n in 0..20 {
            let text = format!("text {}", n % 10);
            rewrite(&path, &text);
            assert_eq!(server.get("/f").text(), text, "{http}");
            assert_eq!(server.get("/f").text(), text, "{http}");
        }
    }
}

/// Also the compressed form, and the file of `gzip_static`.
#[test]
fn new_text_is_sent_in_every_form() {
    let server = start("gzip on; gzip_min_length 0; gzip_types *; gzip_static on;");
    let zip = server.dir().join("html/f.gz");
    let packed = || server.get_with("/f", "Accept-Encoding: gzip\r\n").body;
    let plain = server.dir().join("html/f");
    rewrite(&plain, "text 0");
    let first = packed();
    rewrite(&plain, "text 1");
    assert_ne!(packed(), first);
    fs::write(&zip, "").unwrap();
    rewrite(&zip, "zip 0");
    assert_eq!(packed(), b"zip 0");
    rewrite(&zip, "zip 1");
    assert_eq!(packed(), b"zip 1");
}

#[test]
fn a_file_that_may_no_longer_be_read_is_not_sent() {
    let can_change_user = fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt;
        m.uid() == 0
    });
    if !can_change_user {
        return skip("only root can run workers as somebody else");
    }
    let conf = "user nobody root; events {} http {
        server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; } }";
    let server = Setup::new(conf).file("html/d/f", "text").start();
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(server.dir().join(path), Permissions::from_mode(mode)).unwrap();
    };
    mode("html/d/f", 0o644);
    assert_eq!(server.get("/d/f").text(), "text");
    assert_eq!(server.get("/d/f").text(), "text");
    mode("html/d/f", 0o000);
    assert_eq!(server.get("/d/f").status, 403);
    mode("html/d/f", 0o644);
    assert_eq!(server.get("/d/f").text(), "text");
    mode("html/d", 0o700);
    assert_eq!(server.get("/d/f").status, 403);
    mode("html/d", 0o755);
    assert_eq!(server.get("/d/f").text(), "text");
}
