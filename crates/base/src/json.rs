//! What a document of JSON becomes in memory, before it is read.

/// A tree of a document takes up to so many times the document's own bytes: an object of one member some 600 bytes, a number 32.
const OBJECTS_MAX: usize = 150_000;
const LISTS_MAX: usize = 150_000;
const VALUES_MAX: usize = 2_000_000;

/// Whether a document has more in it than the figures of any server, so that its tree could take some hundred megabytes.
/// Brackets and commas in texts count as well.
pub fn is_too_much(text: &[u8]) -> bool {
    let (mut objects, mut lists, mut values) = (0usize, 0usize, 0usize);
    for byte in text {
        match byte {
            b'{' => objects += 1,
            b'[' => lists += 1,
            b',' => values += 1,
            _ => {}
        }
    }
    objects > OBJECTS_MAX || lists > LISTS_MAX || values > VALUES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_small_may_be_much() {
        assert!(!is_too_much(b"{\"a\":[1,2,3]}"));
        assert!(!is_too_much(&[b' '; 4_000_000]));
        for (part, n) in [("{\"\":0},", OBJECTS_MAX), ("[],", LISTS_MAX), ("0,", VALUES_MAX)] {
            assert!(!is_too_much(part.repeat(n).as_bytes()), "{part}");
            assert!(is_too_much(part.repeat(n + 1).as_bytes()), "{part}");
        }
    }
}
