use super::*;

const LIMITS: HpackLimits = HpackLimits { string_max_bytes: 1000, block_max_bytes: 4000 };

fn decode(d: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, HpackError> {
    let mut fields = Fields::default();
    d.decode(block, &LIMITS, &mut fields)?;
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    Ok(fields.iter().map(|(n, v)| (text(n), text(v))).collect())
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b' ').collect();
    let byte = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// RFC 7541 appendix C.4: three requests with Huffman coding, one after another.
#[test]
fn requests_of_the_rfc() {
    let mut d = Decoder::default();
    let first = decode(&mut d, &hex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff")).unwrap();
    let common = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
    let mut expected = pairs(&common);
    expected.extend(pairs(&[(":authority", "www.example.com")]));
    assert_eq!(first, expected);
    assert_eq!(d.table_size(), 57);
    let second = decode(&mut d, &hex("8286 84be 5886 a8eb 1064 9cbf")).unwrap();
    expected.extend(pairs(&[("cache-control", "no-cache")]));
    assert_eq!(second, expected);
    assert_eq!(d.table_size(), 110);
    let third = decode(&mut d, &hex("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf"));
    let third = third.unwrap();
    assert_eq!(third[4], ("custom-key".to_string(), "custom-value".to_string()));
    assert_eq!(d.table_size(), 164);
}

#[test]
fn errors() {
    for (block, expected) in [
        ("80", HpackError::BadIndex),
        ("be", HpackError::BadIndex),
        ("3fe21f", HpackError::BadTableSize),
        ("8220", HpackError::BadTableSize),
        ("ff", HpackError::Truncated),
        ("42ff", HpackError::Truncated),
        ("ffffffff", HpackError::IntegerTooLong),
        ("42ffffffff", HpackError::IntegerTooLong),
        ("4203", HpackError::Truncated),
        ("0000", HpackError::EmptyName),
        ("427fff07", HpackError::StringTooLarge),
        ("4282ffff", HpackError::BadHuffman),
    ] {
        assert_eq!(decode(&mut Decoder::default(), &hex(block)), Err(expected), "{block}");
    }
}

/// A small block that refers to one large entry again and again.
#[test]
fn bomb() {
    let mut block = vec![0x40, 1, b'x', 0x7f, 0xd1, 6];
    block.extend_from_slice(&[b'y'; 976]);
    let mut d = Decoder::default();
    assert!(decode(&mut d, &block).is_ok());
    assert_eq!(decode(&mut d, &[0xbe; 10]), Err(HpackError::BlockTooLarge));
}

#[test]
fn eviction_and_sizes() {
    let mut d = Decoder::default();
    // 46 bytes: room for one entry of 34.
    let block = [0x3f, 15, 0x40, 1, b'a', 1, b'b', 0x40, 1, b'c', 1, b'd', 0xbe];
    let fields = decode(&mut d, &block).unwrap();
    assert_eq!(fields[2], ("c".to_string(), "d".to_string()));
    assert_eq!(decode(&mut d, &[0xbf]), Err(HpackError::BadIndex));
    assert!(decode(&mut d, &[0x20]).unwrap().is_empty());
    assert_eq!(d.table_size(), 0);
}

#[test]
fn there_and_back() {
    let mut out = Vec::new();
    out.push(EMPTY_TABLE);
    for code in [200, 204, 206, 304, 400, 404, 500, 301, 503] {
        status(code, &mut out);
    }
    literal_known(Known::SERVER, b"weir", &mut out);
    text_known(Known::CONTENT_LENGTH, b"12345", &mut out);
    literal_lower(b"X-Foo", &[b'{'; 300], &mut out);
    literal(b"etag", b"\"1\"", &mut out);
    let got = decode(&mut Decoder::default(), &out).unwrap();
    let codes: Vec<&str> = got.iter().take(9).map(|(_, v)| v.as_str()).collect();
    assert_eq!(codes, ["200", "204", "206", "304", "400", "404", "500", "301", "503"]);
    let (foo, etag) = ("{".repeat(300), "\"1\"");
    let rest = [("server", "weir"), ("content-length", "12345"), ("x-foo", &foo), ("etag", etag)];
    assert_eq!(got[9..], pairs(&rest));
    assert_eq!(Known::LAST_MODIFIED.name(), b"last-modified");
}

#[test]
fn names_of_the_fixed_table_are_sent_by_their_numbers() {
    for (name, _) in static_table::STATIC.iter().filter(|(name, _)| name[0] != b':') {
        let mut out = Vec::new();
        literal_lower(&name.to_ascii_uppercase(), b"~", &mut out);
        assert!(out.len() <= 4, "{}", String::from_utf8_lossy(name));
        let expected = [(std::str::from_utf8(name).unwrap(), "~")];
        assert_eq!(decode(&mut Decoder::default(), &out).unwrap(), pairs(&expected));
    }
    let mut out = Vec::new();
    literal_lower(&[b'x'; 100], b"~", &mut out);
    literal_lower(b"", b"~", &mut out);
    assert_eq!(out[..2], [0, 0x80 | 88], "coded, and no number");
}
