//! The little of XML that WebDAV's bodies need: which properties are asked for, which lock is wanted, and
//! texts that are safe in an answer.

use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::NsReader;

/// Elements within one another, and properties that may be asked for.
const DEPTH_MAX: usize = 16;
const PROPERTIES_MAX: usize = 100;
/// Of their names and namespaces together: each file's answer has them again.
const NAMES_MAX_BYTES: usize = 4096;

/// What of properties is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Their names alone.
    Names,
    All,
    These(Vec<Property>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Property {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The body is not what it should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bad;

const DAV: &str = "DAV:";

fn property(reader: &NsReader<&[u8]>, element: &BytesStart<'_>) -> Result<Property, Bad> {
    let (namespace, name) = reader.resolver().resolve_element(element.name());
    let namespace = match namespace {
        ResolveResult::Bound(Namespace(namespace)) => {
            quick_xml::escape::unescape(namespace).map_err(|_| Bad)?.into_owned()
        }
        ResolveResult::Unbound => String::new(),
        ResolveResult::Unknown(_) => return Err(Bad),
    };
    Ok(Property { namespace, name: name.as_ref().to_string() })
}

impl Property {
    fn is(&self, name: &str) -> bool {
        self.namespace == DAV && self.name == name
    }

    /// Its name, if it is one of WebDAV's own.
    pub(super) fn dav(&self) -> Option<&str> {
        (self.namespace == DAV).then_some(&self.name)
    }
}

/// Calls for each element with those around it, and for text; every entity but XML's five is refused.
fn walk(
    body: &[u8],
    mut hear: impl FnMut(&[Property], Heard<'_>) -> Result<(), Bad>,
) -> Result<(), Bad> {
    let mut reader = NsReader::from_str(std::str::from_utf8(body).map_err(|_| Bad)?);
    reader.config_mut().expand_empty_elements = true;
    let mut path: Vec<Property> = Vec::new();
    let mut seen = false;
    loop {
        match reader.read_event().map_err(|_| Bad)? {
            Event::Start(element) => {
                let property = property(&reader, &element)?;
                if path.len() == DEPTH_MAX || path.is_empty() && seen {
                    return Err(Bad);
                }
                seen = true;
                path.push(property);
                hear(&path, Heard::Element)?;
            }
            Event::End(_) => {
                path.pop();
            }
            Event::Text(text) if path.is_empty() && text.trim().is_empty() => {}
            Event::Text(_) if path.is_empty() => return Err(Bad),
            Event::Text(text) => hear(&path, Heard::Text(&text))?,
            Event::GeneralRef(entity) if !path.is_empty() => {
                let known = match entity.resolve_char_ref() {
                    Ok(Some(c)) => c,
                    _ => named(&entity).ok_or(Bad)?,
                };
                hear(&path, Heard::Text(known.encode_utf8(&mut [0; 4])))?;
            }
            // Entities could make much of little.
            Event::DocType(_) | Event::GeneralRef(_) => return Err(Bad),
            Event::Eof if path.is_empty() && seen => return Ok(()),
            Event::Eof => return Err(Bad),
            _ => {}
        }
    }
}

/// XML's own entities.
fn named(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => return None,
    })
}

enum Heard<'a> {
    Element,
    Text(&'a str),
}

/// A `propfind`; an empty body asks for all.
pub(super) fn propfind(body: &[u8]) -> Result<Wanted, Bad> {
    if body.trim_ascii().is_empty() {
        return Ok(Wanted::All);
    }
    let (mut wanted, mut names_bytes) = (None, 0);
    walk(body, |path, heard| {
        if !path.first().is_some_and(|root| root.is("propfind")) {
            return Err(Bad);
        }
        let Heard::Element = heard else { return Ok(()) };
        match path {
            [_, how] if how.is("propname") => wanted = Some(Wanted::Names),
            [_, how] if how.is("allprop") => wanted = Some(Wanted::All),
            [_, how] if how.is("prop") => wanted = Some(Wanted::These(Vec::new())),
            [_, how, property] if how.is("prop") => match &mut wanted {
                Some(Wanted::These(list)) if list.len() < PROPERTIES_MAX => {
                    names_bytes += property.name.len() + property.namespace.len();
                    if names_bytes > NAMES_MAX_BYTES {
                        return Err(Bad);
                    }
                    list.push(property.clone())
                }
                _ => return Err(Bad),
            },
            _ => {}
        }
        Ok(())
    })?;
    wanted.ok_or(Bad)
}

/// A lock as it is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LockInfo {
    pub(super) shared: bool,
    pub(super) write: bool,
    pub(super) owner: String,
    owner_is_link: bool,
}

impl LockInfo {
    /// The owner, as XML that is safe to send.
    pub(super) fn owner_xml(&self) -> Vec<u8> {
        let (start, end): (&[u8], &[u8]) = match self.owner_is_link {
            true => (b"<D:href>", b"</D:href>"),
            false => (b"", b""),
        };
        let mut out = start.to_vec();
        escape(&mut out, self.owner.trim());
        out.extend_from_slice(end);
        out
    }
}

/// A `lockinfo`; `None` where there is no body.
pub(super) fn lockinfo(body: &[u8]) -> Result<Option<LockInfo>, Bad> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let mut info = LockInfo::default();
    walk(body, |path, heard| {
        if !path.first().is_some_and(|root| root.is("lockinfo")) {
            return Err(Bad);
        }
        match (path, heard) {
            ([_, scope, kind], Heard::Element) if scope.is("lockscope") => {
                info.shared |= kind.is("shared")
            }
            ([_, scope, kind], Heard::Element) if scope.is("locktype") => {
                info.write |= kind.is("write")
            }
            ([_, owner, .., last], Heard::Element) if owner.is("owner") => {
                info.owner_is_link |= last.is("href");
            }
            ([_, owner, ..], Heard::Text(text)) if owner.is("owner") => info.owner.push_str(text),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Some(info))
}

/// Writes text so that it is nothing but text; what XML has no place for becomes `?`.
pub(super) fn escape(out: &mut Vec<u8>, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '&' => out.extend_from_slice(b"&amp;"),
            '"' => out.extend_from_slice(b"&quot;"),
            '\t' | '\n' | '\r' => out.push(b' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(b'?'),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let these = |names: &[(&str, &str)]| {
            let property = |(ns, name): &(&str, &str)| Property {
                namespace: ns.to_string(),
                name: name.to_string(),
            };
            Wanted::These(names.iter().map(property).collect())
        };
        for (body, expected) in [
            ("", Ok(Wanted::All)),
            ("\n<propfind xmlns='DAV:'>\n<propname/>\n</propfind>\n", Ok(Wanted::Names)),
            ("<?xml version='1.0'?><propfind xmlns='DAV:'><allprop/></propfind>", Ok(Wanted::All)),
            ("<D:propfind xmlns:D='DAV:'><D:propname/></D:propfind>", Ok(Wanted::Names)),
            (
                "<a:propfind xmlns:a='DAV:'><a:prop><a:getetag/><x xmlns='urn:y'/><z/></a:prop></a:propfind>",
                Ok(these(&[("DAV:", "getetag"), ("urn:y", "x"), ("", "z")])),
            ),
            ("<propfind/>", Err(Bad)),
            ("<propfind xmlns='DAV:'/>", Err(Bad)),
            ("<propfind xmlns='DAV:'><prop>", Err(Bad)),
            ("<D:propfind/>", Err(Bad)),
            ("<!DOCTYPE a [<!ENTITY b 'c'>]><propfind xmlns='DAV:'><allprop/></propfind>", Err(Bad)),
            ("rubbish", Err(Bad)),
        ] {
            assert_eq!(propfind(body.as_bytes()), expected, "{body}");
        }
        let many = format!(
            "<p:propfind xmlns:p='DAV:'><p:prop>{}</p:prop></p:propfind>",
            "<p:a/>".repeat(101)
        );
        assert_eq!(propfind(many.as_bytes()), Err(Bad));
        assert_eq!(propfind("<a>".repeat(10_000).as_bytes()), Err(Bad));
    }

    #[test]
    fn locks_that_are_wanted() {
        let body = "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope><D:locktype>\
            <D:write/></D:locktype><D:owner><D:href>http://a/?b&lt;c</D:href></D:owner></D:lockinfo>";
        let info = lockinfo(body.as_bytes()).unwrap().unwrap();
        assert!(info.write && !info.shared);
        let owner = String::from_utf8(info.owner_xml()).unwrap();
        assert_eq!(owner, "<D:href>http://a/?b&lt;c</D:href>");
        let shared = body.replace("exclusive", "shared");
        assert!(lockinfo(shared.as_bytes()).unwrap().unwrap().shared);
        assert_eq!(lockinfo(b" "), Ok(None));
        assert_eq!(lockinfo(b"<a/>"), Err(Bad));
    }

    #[test]
    fn texts_are_texts() {
        let mut out = Vec::new();
        escape(&mut out, "a<b>&\"c\u{1}\né");
        assert_eq!(String::from_utf8(out).unwrap(), "a&lt;b&gt;&amp;&quot;c? é");
    }
}
