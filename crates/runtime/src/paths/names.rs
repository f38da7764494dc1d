//! Names that Windows takes for another file's than they say, or for no file's at all: what a `location` or a rule that
//! looks at the name would let by. All of them are refused, whether there is such a file or not.
//!
//! * `file.txt::$DATA`, `file.txt:stream`: streams. A colon is part of a drive alone (`C:`), at the beginning.
//! * `file.txt.`, `file.txt `: dots and spaces at the end are cut off by the system.
//! * `LONGNA~1.TXT`: short names (8.3), of which each long one may have one. Others with a `~`, which administrators or wine
//!   have made, are known by asking the system for the long one.
//! * `con`, `nul.txt`, `com1`, `lpt²` …: devices, in each folder and whatever stands behind a dot or colon.
//! * Control characters and `<>"|?*`, which no name has; some of them are wildcards to the system.

/// Devices; those with a number have one of 1 to 9, or of the superscripts ¹²³, behind them.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];
const NUMBERED: [&str; 2] = ["com", "lpt"];

/// Whether a path names what it says, part by part.
pub(super) fn is_plain(path: &[u8]) -> bool {
    let path = path.strip_prefix(br"\\?\").unwrap_or(path);
    let rest = match path {
        [drive, b':', rest @ ..] if drive.is_ascii_alphabetic() => rest,
        _ => path,
    };
    rest.split(|b| matches!(b, b'/' | b'\\')).all(is_plain_part)
}

/// A name that no file has, for one that is not plain: whoever opens it is told so, and shown what it was, with signs for
/// others that would lead somewhere.
pub(super) fn none_for(path: &[u8]) -> String {
    let shown = |c: char| match c {
        '/' | '\\' => '\u{2044}',
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('?'),
        c => c,
    };
    format!("<no name> {}", String::from_utf8_lossy(path).chars().map(shown).collect::<String>())
}

/// Whether a URI names what it says below a folder: there it has none of the system's own separators either.
pub(super) fn is_plain_uri(uri: &[u8]) -> bool {
    !uri.contains(&b'\\') && uri.split(|b| *b == b'/').all(is_plain_part)
}

/// A path in the system's longest form (`\\?\C:\x`, `\\?\UNC\host\x`), in which `/` is part of a name, as all others say it.
/// One that would lead elsewhere then stays.
pub(super) fn short_form(path: &[u8]) -> Vec<u8> {
    let Some(rest) = path.strip_prefix(br"\\?\") else { return path.to_vec() };
    let short = match rest.strip_prefix(br"UNC\") {
        Some(share) => [br"\\", share].concat(),
        None => rest.to_vec(),
    };
    match is_plain(&short) && is_whole(&short) {
        true => short,
        false => path.to_vec(),
    }
}

/// A name as it is compared: letter for letter, of the same length, as far as it is text. Few letters have a partner of
/// another length (`Ⱥ`); they stay what they are.
pub fn caseless(name: &[u8]) -> Vec<u8> {
    fn partner(c: char, mut others: impl Iterator<Item = char>) -> char {
        match (others.next(), others.next()) {
            (Some(one), None) if one.len_utf8() == c.len_utf8() => one,
            _ => c,
        }
    }
    // Some have one capital for two small ones, and some a capital that only that knows.
    let folded = |c: char| {
        let c = partner(c, c.to_uppercase());
        partner(c, c.to_lowercase())
    };
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    let mut out = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let text: String = chunk.valid().chars().map(folded).collect();
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(chunk.invalid());
    }
    out
}

/// Whether a name says the whole way: from a drive, or from its root.
pub fn is_whole(name: &[u8]) -> bool {
    matches!(name, [b'/' | b'\\', ..] | [b'a'..=b'z' | b'A'..=b'Z', b':', ..])
}

/// Whether a folder's path has a slash behind it before a name. Behind a drive alone it would be another folder, and a path
/// that the system takes as it stands (`\\?\`) has its own separators.
pub(super) fn wants_slash(folder: &[u8]) -> bool {
    let is_open = folder.last().is_some_and(|last| !br"\/:".contains(last));
    is_open && !folder.starts_with(br"\\?\")
}

fn is_plain_part(part: &[u8]) -> bool {
    if matches!(part, b"" | b"." | b"..") {
        return true;
    }
    let is_odd = |b: &u8| *b < b' ' || matches!(b, b':' | b'<' | b'>' | b'"' | b'|' | b'?' | b'*');
    let ends_odd = matches!(part.last(), Some(b'.' | b' '));
    !(ends_odd || part.iter().any(is_odd) || is_short(part) || is_device(part))
}

const SHORT_MAX_CHARS: usize = 8;

/// `~` and digits at the end of eight characters at most, as the system makes them.
fn is_short(part: &[u8]) -> bool {
    part.split(|b| *b == b'.').any(|stem| {
        let Some(at) = stem.iter().rposition(|b| *b == b'~') else { return false };
        let digits = &stem[at + 1..];
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        is_number && String::from_utf8_lossy(stem).chars().count() <= SHORT_MAX_CHARS
    })
}

/// Where parts end that may be short names of another kind: the system is to be asked.
pub(super) fn perhaps_short(path: &str) -> impl Iterator<Item = usize> + '_ {
    let mut end = 0;
    let ends = path.split(['/', '\\']).filter_map(move |part| {
        end += part.len();
        let at = end;
        end += 1;
        let stem = part.split('.').next().unwrap_or_default();
        let may_be = part.contains('~') && stem.chars().count() <= SHORT_MAX_CHARS;
        may_be.then_some(at)
    });
    ends
}

/// Where what stands before each `..` ends, if it has a name, whatever of slashes and dots is in between.
pub(super) fn before_climbs(path: &str) -> impl Iterator<Item = usize> + '_ {
    let mut begin = 0;
    let ends = path.split(['/', '\\']).filter_map(move |part| {
        let at = begin;
        begin += part.len() + 1;
        (part == "..").then_some(at)
    });
    ends.filter_map(|at| {
        let mut before = &path[..at];
        while let Some(rest) = before.strip_suffix(['/', '\\']) {
            before = rest.strip_suffix('.').filter(|r| r.ends_with(['/', '\\'])).unwrap_or(rest);
        }
        let name = before.rsplit(['/', '\\']).next().unwrap_or_default();
        let is_name = !matches!(name, "" | "." | "..") && !name.ends_with(':');
        is_name.then_some(before.len())
    })
}

/// Whether the names of a path are those of another, without regard to case: all that may be short ones, from the end on.
pub(super) fn ends_alike(path: &str, long: &str) -> bool {
    let parts = |path: &'_ str| -> Vec<String> {
        let names = path.split(['/', '\\']).filter(|name| !name.is_empty());
        names.map(str::to_lowercase).collect()
    };
    let (own, long) = (parts(path), parts(long));
    let from = own.iter().position(|name| name.contains('~')).unwrap_or(own.len());
    let count = own.len() - from;
    long.len() >= count && own[from..] == long[long.len() - count..]
}

fn is_device(part: &[u8]) -> bool {
    let stem = part.split(|b| matches!(b, b'.' | b':')).next().unwrap_or_default();
    let Ok(stem) = std::str::from_utf8(stem) else { return false };
    let stem = stem.trim_end_matches(' ').to_ascii_lowercase();
    let is_number = |n: &str| {
        let mut all = n.chars();
        matches!((all.next(), all.next()), (Some('1'..='9' | '¹' | '²' | '³'), None))
    };
    DEVICES.contains(&&*stem)
        || NUMBERED.iter().any(|name| stem.strip_prefix(name).is_some_and(is_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of them leads, or has led, somewhere else than it says.
    const HOSTILE: &[&str] = &[
        "/secret.txt::$DATA",
        "/secret.txt::$data",
        "/secret.txt:$DATA",
        "/secret.txt:stream",
        "/secret.txt:stream:$DATA",
        "/dir::$INDEX_ALLOCATION/secret.txt",
        "/dir:$I30:$INDEX_ALLOCATION/secret.txt",
        "/dir::$index_allocation",
        "/:secret",
        "/secret.txt:",
        "/a:b/secret.txt",
        "/c:/windows/win.ini",
        "/C:",
        "/file:///c:/x",
        "/secret.php::$DATA",
        "/.htaccess::$DATA",
        "/secret.txt.",
        "/secret.txt..",
        "/secret.txt...",
        "/secret.txt ",
        "/secret.txt  ",
        "/secret.txt. ",
        "/secret.txt .",
        "/secret.txt. .",
        "/dir./secret.txt",
        "/dir /secret.txt",
        "/dir../secret.txt",
        "/dir.../secret.txt",
        "/.../secret.txt",
        "/..../secret.txt",
        "/. /secret.txt",
        "/.. /secret.txt",
        "/ /secret.txt",
        "/.htaccess.",
        "/.git./config",
        "/index.php.",
        "/index.php ",
        "/admin./",
        "/admin ./",
        "/admin. /",
        "/SECRET~1.TXT",
        "/secret~1.txt",
        "/secret~1",
        "/SE1A2B~1.TXT",
        "/PROGRA~1/x",
        "/progra~2/x",
        "/a~1/b",
        "/a~12.htm",
        "/.HTACC~1",
        "/HTACCE~1",
        "/GIT~1/config",
        "/~1",
        "/~1.txt",
        "/longfi~9.php",
        "/lo~10000.php",
        "/con",
        "/CON",
        "/Con.txt",
        "/con.",
        "/con ",
        "/con.tar.gz",
        "/a/con/b",
        "/prn",
        "/prn.txt",
        "/aux",
        "/AUX.html",
        "/aux.h",
        "/nul",
        "/NUL.txt",
        "/nul.",
        "/dir/nul",
        "/con:",
        "/con .txt",
        "/nul  .txt",
        "/conin$",
        "/CONOUT$",
        "/conin$.txt",
        "/com1",
        "/COM1.txt",
        "/com9",
        "/com5.",
        "/lpt1",
        "/LPT9.x",
        "/lpt3 ",
        "/com¹",
        "/COM².txt",
        "/lpt³",
        "/a/com1/x",
        "/com1:",
        "/aux::$DATA",
        "/..\\secret.txt",
        "/..\\..\\windows\\win.ini",
        "/a\\..\\secret.txt",
        "/admin\\",
        "/admin\\index.html",
        "/\\secret.txt",
        "/\\\\server\\share\\x",
        "/\\\\?\\c:\\x",
        "/\\\\.\\c:",
        "/a/..\\..\\b",
        "/.\\secret.txt",
        "/static\\../x",
        "/secret.tx?",
        "/secret.*",
        "/secret<",
        "/secret>",
        "/\"secret\"",
        "/a|b",
        "/secret\u{1}.txt",
        "/secret\t",
        "/secret\r\n",
        "/sec<<.txt",
        "/secret.txt\u{1f}",
    ];

    const PLAIN: &[&str] = &[
        "/",
        "/a",
        "/a/",
        "/a//b",
        "/index.html",
        "/a.b.c",
        "/.well-known/x",
        "/.hidden",
        "/a b/c d.txt",
        "/a~b",
        "/backup~",
        "/a~1b",
        "/longer-name~1",
        "/~user/",
        "/console",
        "/connect",
        "/contact.html",
        "/auxiliary",
        "/null",
        "/nulls.txt",
        "/com",
        "/com0",
        "/com10",
        "/comx",
        "/lpt",
        "/com1a",
        "/xcon",
        "/caf\u{e9}.txt",
        "/a;b",
        "/a&b=c",
        "/$x",
        "/a%20",
        "/a+b,c",
        "/{x}[y]",
        "/'q'",
        "/..",
        "/.",
        "/a/../b",
    ];

    #[test]
    fn characters_are_counted_and_not_bytes() {
        assert!(!is_plain("/ÄÖÜGEH~1.TXT".as_bytes()));
        assert!(is_plain("/ÄÖÜGEHE~1.TXT".as_bytes()));
    }

    #[test]
    fn other_short_names_are_asked_for() {
        let all =
            |path: &str| perhaps_short(path).map(|at| path[..at].to_owned()).collect::<Vec<_>>();
        assert_eq!(all("C:/a/_GIT~IBP/b~.txt"), ["C:/a/_GIT~IBP", "C:/a/_GIT~IBP/b~.txt"]);
        assert_eq!(all("é~b\\plain\\longer-name~abc/x"), ["é~b"]);
        assert!(ends_alike("C:/a/É~b", "x\\é~B") && !ends_alike("C:/a/_GIT~IBP", "C:\\a\\.git"));
        assert!(ends_alike("C:\\a//b~x/c/d~y", "C:\\a\\b~x\\C\\d~y"));
        for long in ["C:\\a\\other\\c\\d~y", "C:\\a\\b~x\\c\\other", "d~y", ""] {
            assert!(!ends_alike("C:/a/b~x/c/d~y", long), "{long}");
        }
    }

    #[test]
    fn names_have_no_case() {
        let alike = |a: &str, b: &[u8]| caseless(a.as_bytes()) == caseless(b);
        assert!(alike("/\u{fc}bung/\u{3c9}/A", "/\u{dc}BUNG/\u{3a9}/a".as_bytes()));
        assert!(!alike("/stra\u{df}e", b"/STRASSE") && !alike("/\u{131}", b"/I"));
        for name in ["/\u{17f}\u{212a}\u{130}\u{149}/\u{fb01}", "/a\u{e9}"] {
            assert_eq!(caseless(name.as_bytes()).len(), name.len(), "{name}");
        }
        assert!(alike("/\u{3c2}\u{1fb3}", "/\u{3c3}\u{1fbc}".as_bytes()));
        assert_eq!(caseless(b"/A\xc3\x9c\xff\xe9"), b"/a\xc3\xbc\xff\xe9", "what is text of it");
    }

    #[test]
    fn what_is_climbed_out_of_is_known() {
        let all =
            |path: &str| before_climbs(path).map(|at| path[..at].to_owned()).collect::<Vec<_>>();
        assert_eq!(all("C:/a/x-b/../../c"), ["C:/a/x-b"]);
        assert_eq!(all("logs\\x\\..\\y/../z"), ["logs\\x", "logs\\x\\..\\y"]);
        assert_eq!(all("/f.txt/./../a.//..\\.\\../c"), ["/f.txt", "/f.txt/./../a."]);
        assert!(all("../.././../C:/../x..").is_empty());
    }

    #[test]
    fn what_names_nothing_is_shown() {
        assert_eq!(none_for(b"C:\\a/../b:c"), "<no name> C:\u{2044}a\u{2044}..\u{2044}b:c");
        assert_eq!(none_for(b"C:\nginx\t\xff"), "<no name> C:\u{240a}ginx\u{2409}\u{fffd}");
        assert!(HOSTILE.iter().all(|path| !is_plain(none_for(path.as_bytes()).as_bytes())));
    }

    #[test]
    fn the_longest_form_is_said_shortly() {
        for (long, short) in [
            (r"\\?\C:\a b\c", r"C:\a b\c"),
            (r"\\?\UNC\host\share\x", r"\\host\share\x"),
            (r"C:\x", r"C:\x"),
            (r"\\?\C:\x.", r"\\?\C:\x."),
            (r"\\?\C:\con\x", r"\\?\C:\con\x"),
            (r"\\?\Volume{1-2}\x", r"\\?\Volume{1-2}\x"),
        ] {
            assert_eq!(short_form(long.as_bytes()), short.as_bytes());
        }
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        assert!(HOSTILE.len() >= 100, "{}", HOSTILE.len());
        for uri in HOSTILE {
            assert!(!is_plain_uri(uri.as_bytes()), "{uri:?}");
            // Behind a root the system's separators are nothing odd.
            let path = format!("C:/web{uri}");
            assert!(!is_plain(path.as_bytes()) || uri.contains('\\'), "{path:?}");
        }
        for uri in PLAIN {
            assert!(is_plain_uri(uri.as_bytes()), "{uri:?}");
        }
    }

    #[test]
    fn names_begin_at_a_root_or_below_a_folder() {
        for name in ["/a", r"\a", "C:/a", "c:a"] {
            assert!(is_whole(name.as_bytes()), "{name}");
        }
        for name in ["", "a/b", "1:a", "ab:c"] {
            assert!(!is_whole(name.as_bytes()), "{name}");
        }
        for (folder, wants) in [
            ("C:/web", true),
            ("web", true),
            ("", false),
            ("C:", false),
            ("C:/", false),
            (r"C:\web\", false),
            (r"\\?\C:\web", false),
        ] {
            assert_eq!(wants_slash(folder.as_bytes()), wants, "{folder}");
        }
    }

    #[test]
    fn paths_of_configurations_are_plain() {
        for path in [
            "C:/web/html",
            r"C:\web\html",
            r"\\server\share\x",
            r"\\?\C:\web",
            "conf/nginx.conf",
            r"Z:\run\.\conf/nginx.conf",
            "../html",
            "d:",
            "",
        ] {
            assert!(is_plain(path.as_bytes()), "{path}");
        }
        for path in ["C:/web:x", "CC:/web", r"C:\web\nul", r"C:\web\a.", r"\\?\C:\a\x::$DATA"] {
            assert!(!is_plain(path.as_bytes()), "{path}");
        }
    }
}
