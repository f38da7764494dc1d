//! What receivers answer, made fit to be shown: some repeat what they were sent, also what nobody but they are to know, and
//! nothing in a stranger's text is to move a cursor or turn the direction of writing.

use weir_base::base64;
use weir_base::shown::visible;

const STRUCK: &str = "***";
/// A secret that is shorter is struck out only where it stands as a word: it may be a part of many others.
const LONG_BYTES: usize = 8;
/// Parts of a value that are shorter are words.
const PART_BYTES: usize = 6;
/// So much of a long one's beginning, at the end of a text that was cut off.
const CUT_LEAST_BYTES: usize = 4;

/// What is not to be shown; the longest first.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Values of all fields that requests have: who may read errors need not be who may read these.
    pub fn of_fields(fields: &[(String, String)]) -> Secrets {
        let mut all = Vec::new();
        for (_, value) in fields {
            all.push(value.clone());
            // Cookies and the like: what stands behind each "=".
            let parts = value.split([';', ',']).filter_map(|part| part.split_once('='));
            all.extend(
                parts
                    .map(|(_, part)| part.trim().to_owned())
                    .filter(|part| part.len() >= PART_BYTES),
            );
            let Some((_, rest)) = value.split_once(' ') else { continue };
            all.push(rest.to_owned());
            packed(rest, &mut all);
        }
        // As JSON has them.
        let quoted = all.iter().filter(|s| s.contains(['"', '\\']));
        let quoted: Vec<_> = quoted.map(|s| s.replace('\\', "\\\\").replace('"', "\\\"")).collect();
        all.extend(quoted);
        all.retain(|secret| !secret.is_empty());
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        all.dedup();
        Secrets(all)
    }

    /// A text without them, in which all is visible.
    pub fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.0 {
            text = strike(&text, secret);
        }
        visible(text.as_bytes())
    }
}

/// What a scheme (basic, or keys that are `id:key`) has in base64: as it is told in other ways of writing that, and what it is.
fn packed(text: &str, all: &mut Vec<String>) {
    let inside = base64::decode(text.as_bytes()).or_else(|| base64::decode_url(text.as_bytes()));
    let Some(inside) = inside.and_then(|p| String::from_utf8(p).ok()) else { return };
    let bare = text.trim_end_matches('=');
    all.push(bare.to_owned());
    all.push(bare.replace('+', "-").replace('/', "_"));
    all.push(bare.replace('-', "+").replace('_', "/"));
    all.extend(inside.split_once(':').map(|(_, password)| password.to_owned()));
    all.push(inside);
}

fn strike(text: &str, secret: &str) -> String {
    let is_long = secret.len() >= LONG_BYTES;
    let is_apart = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, behind)) = rest.split_once(secret) {
        out.push_str(before);
        let is_word = is_apart(out.chars().next_back()) && is_apart(behind.chars().next());
        out.push_str(if is_long || is_word { STRUCK } else { secret });
        rest = behind;
    }
    out.push_str(rest);
    let cut = (CUT_LEAST_BYTES..secret.len()).rev().filter(|_| is_long);
    let cut = cut.filter_map(|len| secret.get(..len)).find(|part| out.ends_with(part));
    if let Some(part) = cut {
        out.truncate(out.len() - part.len());
        out.push_str(STRUCK);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_struck_out() {
        let fields = [
            ("Authorization", "Basic Ym9iOlMzIlJFVFBX"),
            ("X-Key", "token-4711-abc"),
            ("X-Tenant", "us"),
            ("Authorization", "ApiKey aWQ6czNjcj9+Pj5Qdz8/Pi8reA=="),
            ("Cookie", "sid=hunter2hunter2; a=b"),
        ];
        let fields = fields.map(|(n, v)| (n.to_owned(), v.to_owned()));
        let secrets = Secrets::of_fields(&fields);
        for (text, expected) in [
            ("401 \"Basic Ym9iOlMzIlJFVFBX\" no", "401 \"***\" no"),
            ("bad creds: Ym9iOlMzIlJFVFBX", "bad creds: ***"),
            ("bob:S3\"RETPW or S3\\\"RETPW", "*** or ***"),
            ("key=token-4711-abc; token-4711-abctoken-4711-abc", "key=***; ******"),
            ("it begins: token-4711", "it begins: ***"),
            ("no id:s3cr?~>>Pw??>/+x", "no ***"),
            ("key s3cr?~>>Pw??>/+x", "key ***"),
            ("bad aWQ6czNjcj9+Pj5Qdz8/Pi8reA", "bad ***"),
            ("bad aWQ6czNjcj9-Pj5Qdz8_Pi8reA==", "bad ***=="),
            ("no session hunter2hunter2", "no session ***"),
            ("status of us must", "status of *** must"),
            ("a\x1b[2J\u{202e}b\r\nc", "a\\x1b[2J\\u{202e}b\\x0d\\x0ac"),
        ] {
            assert_eq!(secrets.clean(text), expected);
        }
        assert_eq!(Secrets::default().clean("as it is"), "as it is");
    }
}
