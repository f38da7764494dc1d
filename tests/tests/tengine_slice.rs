//! Tengine's slice without a size: parts of files that arguments name.

use weir_tests::{run_cli, Setup};

#[test]
fn parts_of_files() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
        location / { slice; }
        location /named/ { slice; slice_arg_begin from; slice_arg_end to; alias %%DIR%%/; }
        location /around/ { slice; slice_header H; slice_footer F; alias %%DIR%%/; }
        location /inside/ { slice; slice_header H; slice_footer F; slice_header_first off; slice_footer_last off; alias %%DIR%%/; }
        } }"#,
    )
    .file("f", "0123456789")
    .start();
    for (path, expected) in [
        ("/f", "0123456789"),
        ("/f?begin=3", "3456789"),
        ("/f?begin=3&end=5", "34"),
        ("/f?end=2", "01"),
        ("/f?begin=10", "0123456789"),
        ("/f?begin=5&end=3", "56789"),
        ("/f?begin=x&end=99", "0123456789"),
        ("/f?begin=5&end=5", ""),
        ("/named/f?begin=3&from=8", "89"),
        ("/named/f?to=1", "0"),
        ("/around/f", "H0123456789F"),
        ("/around/f?begin=3&end=5", "H34F"),
        ("/around/f?begin=3&end=3", ""),
        ("/inside/f", "0123456789"),
        ("/inside/f?begin=3", "H3456789"),
        ("/inside/f?begin=3&end=5", "H34F"),
        ("/inside/f?end=5", "01234F"),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.text(), expected, "{path}");
        assert_eq!(answer.content_length(), Some(expected.len()), "{path}");
    }
    assert_eq!(server.head("/f?begin=3").content_length(), Some(7));
    assert_eq!(server.get("/none").status, 404);
    assert_eq!(server.post("/f", "x").status, 405);
    let told = run_cli(&["-t"], "events {} http { slice; }").stderr;
    assert!(told.contains("invalid number of arguments in \"slice\" directive"), "{told}");
}
