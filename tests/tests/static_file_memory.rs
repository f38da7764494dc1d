//! `open_file_memory`: the answers are the same with little memory, or none.

use std::io::Read;
use weir_tests::Setup;

#[test]
fn files_and_their_compressed_forms_are_right_whatever_room_there_is() {
    for size in ["0", "8k", "64m"] {
        let mut setup = Setup::new(&format!(
            "events {{}} http {{ open_file_memory {size}; gzip on; gzip_types text/plain;
                default_type text/plain;
                server {{ listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; }} }}"
        ));
        for n in 0..20 {
            setup = setup.file(format!("html/{n}"), format!("file {n} ").repeat(200));
        }
        let server = setup.start();
        for n in (0..20).chain(0..20) {
            let plain = server.get(&format!("/{n}"));
            assert_eq!(plain.text(), format!("file {n} ").repeat(200));
            let packed = server.get_with(&format!("/{n}"), "Accept-Encoding: gzip\r\n");
            assert_eq!(packed.header("Content-Encoding"), Some("gzip"));
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut text).unwrap();
            assert!(text == plain.body);
        }
    }
}
