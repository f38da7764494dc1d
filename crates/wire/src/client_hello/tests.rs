use super::*;

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
}

fn name(host: &[u8]) -> Vec<u8> {
    let len = host.len() as u16;
    extension(0, &[&(len + 3).to_be_bytes()[..], &[0], &len.to_be_bytes(), host].concat())
}

fn alpn(list: &[u8]) -> Vec<u8> {
    extension(16, &[&(list.len() as u16).to_be_bytes()[..], list].concat())
}

fn versions() -> Vec<u8> {
    extension(43, b"\x04\x03\x04\x03\x03")
}

/// A message with these extensions; `None` for one that ends before them.
fn message(extensions: Option<&[Vec<u8>]>) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(b"\x02id\x00\x04\x13\x01\x13\x02\x01\x00");
    if let Some(extensions) = extensions {
        let all = extensions.concat();
        body.extend_from_slice(&(all.len() as u16).to_be_bytes());
        body.extend_from_slice(&all);
    }
    let len = (body.len() as u32).to_be_bytes();
    [&[1, len[1], len[2], len[3]], &body[..]].concat()
}

/// The message in records of so many bytes.
fn records(message: &[u8], bytes: usize) -> Vec<u8> {
    let record = |part: &[u8]| {
        let len = (part.len() as u16).to_be_bytes();
        [&[0x16, 3, 1, len[0], len[1]], part].concat()
    };
    message.chunks(bytes).flat_map(record).collect()
}

fn read(buf: &[u8]) -> Progress {
    Reader::new().read(buf)
}

fn hello(extensions: &[Vec<u8>]) -> ClientHello {
    match read(&records(&message(Some(extensions)), 16384)) {
        Progress::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_told() {
    let found = hello(&[extension(1, b"x"), name(b"a.test"), alpn(b"\x02h2\x08http/1.1")]);
    assert_eq!(found.server_name, b"a.test");
    assert_eq!(found.alpn_protocols(), b"h2,http/1.1");
    assert_eq!(found.protocol(), "TLSv1.2");
    let found = hello(&[versions(), extension(0xff01, b"\0")]);
    assert_eq!((found.protocol(), found.server_name.len(), found.alpn.len()), ("TLSv1.3", 0, 0));
    // The first of a kind counts.
    let found = hello(&[name(b"a"), name(b"b"), alpn(b"\x01c"), alpn(b"\x01d")]);
    assert_eq!((&found.server_name[..], &found.alpn_protocols()[..]), (&b"a"[..], &b"c"[..]));
    assert_eq!(hello(&[]), ClientHello { version: [3, 3], ..ClientHello::default() });
    let bare = read(&records(&message(None), 16384));
    assert_eq!(bare, Progress::Hello(hello(&[])));
    let names = [["SSLv2", "SSLv3", "TLSv1", "TLSv1.1"], ["TLSv1.2", "TLSv1.3", "", ""]];
    let versions = [[[0, 2], [3, 0], [3, 1], [3, 2]], [[3, 3], [3, 4], [3, 5], [2, 0]]];
    for (name, version) in names.as_flattened().iter().zip(versions.as_flattened()) {
        assert_eq!(ClientHello { version: *version, ..hello(&[]) }.protocol(), *name);
    }
}

/// Over records and reads of every size.
#[test]
fn in_pieces() {
    let message = message(Some(&[name(b"a.test"), alpn(b"\x02h2\x01x"), versions()]));
    let whole = read(&records(&message, 16384));
    assert!(matches!(&whole, Progress::Hello(hello) if hello.protocol() == "TLSv1.3"));
    for bytes in [1, 2, 3, 7, 50, message.len()] {
        let buf = records(&message, bytes);
        let mut reader = Reader::new();
        for end in 0..buf.len() {
            assert_eq!(reader.read(&buf[..end]), Progress::NeedMore, "{bytes} {end}");
        }
        assert_eq!(reader.read(&buf), whole, "{bytes}");
    }
    // Empty records do no harm, and what follows is not looked at.
    let buf = [&b"\x16\x03\x03\0\0"[..], &records(&message, 9), b"GET / HTTP/1.0"].concat();
    assert_eq!(read(&buf), whole);
}

#[test]
fn version_2() {
    assert_eq!(read(b"\x80\x2e\x01\x03"), Progress::NeedMore);
    for (buf, protocol) in [(b"\x80\x2e\x01\x03\x01", "TLSv1"), (b"\x80\x2e\x01\0\x02", "SSLv2")] {
        let Progress::Hello(hello) = read(buf) else { panic!("{buf:?}") };
        assert_eq!(hello.protocol(), protocol);
    }
    assert_eq!(read(b"\x80\x2e\x01\x02\x01"), Progress::NotTls);
}

#[test]
fn what_is_not_tls() {
    let whole = message(Some(&[name(b"a.test")]));
    let with = |extensions: &[Vec<u8>]| records(&message(Some(extensions)), 16384);
    let mut server_hello = whole.clone();
    server_hello[0] = 2;
    let mut short = whole.clone();
    short[3] -= 1;
    let mut long_id = whole.clone();
    long_id[38] = 0xff;
    for (buf, why) in [
        (b"GET / HTTP/1.0\r\n".to_vec(), "text"),
        (b"\x15\x03\x01\0\x02".to_vec(), "an alert"),
        (b"\x16\x02\x01\0\x02".to_vec(), "another version of records"),
        (records(&server_hello, 16384), "another message"),
        (records(&short, 16384), "a message that is shorter than its extensions"),
        (records(&long_id, 16384), "an id that is longer than the message"),
        (with(&[extension(0, b"\0\x04\x01\0\x01a")]), "a name that is not a host's"),
        (with(&[extension(0, b"\0\x03\0\0\x01a")]), "a name longer than its list"),
        (with(&[alpn(b"")]), "no protocols"),
        (with(&[alpn(b"\0\x01a")]), "a protocol without a name"),
        (with(&[alpn(b"\x02a")]), "a protocol longer than its list"),
        (with(&[extension(1, b"x"), b"\0\x2a\0\x09".to_vec()]), "an extension that is cut off"),
    ] {
        assert_eq!(read(&buf), Progress::NotTls, "{why}");
    }
    assert_eq!(read(b"GET "), Progress::NeedMore);
    assert_eq!(read(b""), Progress::NeedMore);
}
