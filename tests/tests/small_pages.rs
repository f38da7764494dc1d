//! No process of a server that has little to do has a page of 2 MB, of which it would need a part.

use weir_tests::{Server, Setup};

fn huge_kb(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("AnonHugePages:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

#[test]
fn memory_is_backed_by_small_pages() {
    // A fork takes huge pages apart, which does not give their memory back.
    let conf = "master_process off; events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 ok; } }";
    let server: Server = Setup::new(conf).start();
    assert_eq!(server.connect().get("/").text(), "ok");
    for pid in server.children().into_iter().chain([server.pid()]) {
        assert_eq!(huge_kb(pid), 0, "of {pid}");
    }
}
