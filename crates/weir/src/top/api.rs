//! Servers by their APIs, over HTTP.
//!
//! A Weir answers with all its figures at once (`/9/figures`). Of what has no such place (NGINX Plus, an older Weir) places
//! are asked one by one; times have no buckets then.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use weir_base::base64;
use weir_ship::http::{Http, HttpConf};
use weir_ship::line::tls::{self, Tls};
use weir_top::Ask;

/// A question takes no longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Authorities that are trusted in place of the system's, as with OpenSSL.
const ROOTS_VARIABLE: &str = "SSL_CERT_FILE";
const ROOTS_MAX_BYTES: u64 = 16 << 20;
/// The newest version of the API that is known here.
const VERSION_MAX: u64 = 9;
/// What is asked for one by one.
const PLACES: [&str; 13] = [
    "nginx",
    "connections",
    "slabs",
    "ssl",
    "workers",
    "http/requests",
    "http/server_zones",
    "http/location_zones",
    "http/upstreams",
    "http/caches",
    "http/limit_reqs",
    "http/limit_conns",
    "stream/server_zones",
];

/// How it is asked, once that is known.
enum Way {
    Whole,
    /// In this version, each of [`PLACES`].
    Places(u64),
}

pub struct Api {
    name: String,
    http: Http,
    way: Option<Way>,
}

impl Api {
    /// `user`: name and password, unless they stand in the URL.
    pub fn of(url: &str, user: Option<&str>) -> Result<Api, String> {
        let (bare, in_url) = without_user(url);
        let shown: String = bare.escape_debug().collect();
        let credentials = in_url.as_deref().or(user);
        let mut fields = "Accept: application/json\r\n".to_owned();
        if let Some(user) = credentials {
            if !user.contains(':') || user.chars().any(char::is_control) {
                return Err("write name and password as NAME:PASSWORD".into());
            }
            let mut text = Vec::new();
            base64::encode(&mut text, user.as_bytes());
            fields += &format!("Authorization: Basic {}\r\n", String::from_utf8_lossy(&text));
        }
        let tls = match bare.starts_with("https://") {
            true => Some(roots()?),
            false => None,
        };
        let conf = HttpConf::of_url(base(&bare), &fields, PATIENCE, tls);
        let conf = conf.ok_or_else(|| {
            format!("\"{shown}\" is no address of an API: write it as in http://localhost/api/")
        })?;
        let http = Http::new(Arc::new(conf.for_figures()), Arc::default());
        Ok(Api { name: shown, http, way: None })
    }

    /// What is there, or the status.
    fn get(&mut self, path: &str) -> Result<Result<Vec<u8>, u16>, String> {
        let answer = self.http.send("GET", path, "", "", b"")?;
        Ok(if answer.status == 200 { Ok(answer.body) } else { Err(answer.status) })
    }

    fn must_get(&mut self, path: &str) -> Result<Vec<u8>, String> {
        self.get(path)?.map_err(|status| refusal(path, status))
    }

    /// Of what does not tell all at once.
    fn find_places(&mut self) -> Result<Way, String> {
        let versions = self.must_get("/")?;
        let versions: Vec<u64> =
            serde_json::from_slice(&versions).map_err(|_| "what answers there is no API")?;
        let newest = versions.into_iter().filter(|v| *v <= VERSION_MAX).max();
        newest.map(Way::Places).ok_or_else(|| "the API has no version that is known here".into())
    }

    fn places(&mut self, version: u64) -> Result<Vec<u8>, String> {
        let mut whole = serde_json::Map::new();
        for place in PLACES {
            // What that version does not have is not told.
            let Ok(text) = self.get(&format!("/{version}/{place}"))? else { continue };
            let value: serde_json::Value =
                serde_json::from_slice(&text).map_err(|e| format!("{place}: {e}"))?;
            match place.split_once('/') {
                None => drop(whole.insert(place.into(), value)),
                Some((block, name)) => {
                    let block = whole.entry(block).or_insert_with(|| serde_json::Map::new().into());
                    if let Some(block) = block.as_object_mut() {
                        block.insert(name.into(), value);
                    }
                }
            }
        }
        serde_json::to_vec(&whole).map_err(|e| e.to_string())
    }
}

impl Ask for Api {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn figures(&mut self) -> Result<Vec<u8>, String> {
        let whole = format!("/{VERSION_MAX}/figures");
        let told = match self.way {
            Some(Way::Places(version)) => self.places(version),
            Some(Way::Whole) => self.must_get(&whole),
            None => match self.get(&whole)? {
                Ok(text) => {
                    self.way = Some(Way::Whole);
                    return Ok(text);
                }
                Err(404) => {
                    self.way = Some(self.find_places()?);
                    return self.figures();
                }
                Err(status) => Err(refusal(&whole, status)),
            },
        };
        // What answers there may be another server by now.
        told.inspect_err(|_| self.way = None)
    }

    fn visitors(&mut self) -> Result<Vec<u8>, String> {
        self.must_get(&format!("/{VERSION_MAX}/http/analytics_zones"))
    }
}

fn refusal(path: &str, status: u16) -> String {
    match status {
        401 => "it wants a name and a password: write --user NAME:PASSWORD".into(),
        403 => "it lets nobody in from here (403)".into(),
        404 => format!("there is no API ({path}: 404): write \"location /api/ {{ api; }}\" there"),
        status => format!("it answers {path} with {status}"),
    }
}

/// The URL, and name and password that stand in it.
fn without_user(url: &str) -> (String, Option<String>) {
    let found = url.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find('/').unwrap_or(rest.len());
        let (user, host) = rest[..end].rsplit_once('@')?;
        Some((format!("{scheme}://{host}{}", &rest[end..]), user.to_owned()))
    });
    match found {
        Some((bare, user)) => (bare, Some(decoded(&user))),
        None => (url.to_owned(), None),
    }
}

/// `%40` is an `@`.
fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    weir_base::escape::unescape_uri(&mut out, text.as_bytes(), weir_base::escape::Unescape::Uri);
    String::from_utf8_lossy(&out).into_owned()
}

/// Where the API is, without a version.
fn base(url: &str) -> &str {
    let bare = url.trim_end_matches('/');
    match bare.rsplit_once('/') {
        Some((before, last))
            if last.parse::<u8>().is_ok() && before.contains("://") && !before.ends_with('/') =>
        {
            before
        }
        _ => bare,
    }
}

/// TLS by the authorities that this system trusts.
fn roots() -> Result<Tls, String> {
    let told = std::env::var_os(ROOTS_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from);
    let there = || tls::roots_of_system().map(PathBuf::from);
    let path = told.or_else(there).ok_or_else(|| {
        format!("this system has no list of trusted certificates: name one by {ROOTS_VARIABLE}")
    })?;
    let mut read =
        |_: &[u8]| weir_runtime::machine::beginning(&path, ROOTS_MAX_BYTES).map(Arc::<[u8]>::from);
    let name = path.to_string_lossy().into_owned();
    Tls::by_roots(weir_tls::load::trusted(name.as_bytes(), &mut read)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_who_asks() {
        for (url, bare, user) in [
            ("http://a/api/", "http://a/api/", None),
            ("http://u:p@a/api/", "http://a/api/", Some("u:p")),
            ("http://u:p%40q@a", "http://a", Some("u:p@q")),
            ("http://a/x@y", "http://a/x@y", None),
        ] {
            assert_eq!(without_user(url), (bare.to_owned(), user.map(str::to_owned)));
        }
        for (url, expected) in [
            ("http://a/api/", "http://a/api"),
            ("http://a/api/9/", "http://a/api"),
            ("http://a/9", "http://a"),
            ("http://10", "http://10"),
        ] {
            assert_eq!(base(url), expected);
        }
        assert!(Api::of("http://u:p@a/api/", None).is_ok_and(|api| api.name == "http://a/api/"));
        assert!(Api::of("ftp://a", None).is_err());
        assert!(Api::of("http://a/", Some("nobody")).is_err());
    }
}
