//! Which of a backend's header fields stay here: compiled once.

use weir_wire::http1::names::ResponseHeaderId;
use weir_wire::http1::response::ResponseField;

#[inline(never)]
pub(crate) fn has_name(names: &[Vec<u8>], name: &[u8]) -> bool {
    names.iter().any(|n| n.eq_ignore_ascii_case(name))
}

/// Which of a backend's fields do not go to the client.
#[derive(Debug, Default)]
pub(crate) struct HideList {
    ids: u64,
    names: Vec<Vec<u8>>,
    /// Date and Server are the backend's, not this server's.
    pub(crate) passes_date: bool,
    pub(crate) passes_server: bool,
}

impl HideList {
    /// `own`: what the family hides of itself.
    pub(crate) fn new(own: &[&[u8]], hide: &[Vec<u8>], pass: &[Vec<u8>]) -> HideList {
        let mut list = HideList::default();
        let all = own.iter().copied().chain(hide.iter().map(Vec::as_slice));
        for name in all.filter(|n| !pass.iter().any(|p| p.eq_ignore_ascii_case(n))) {
            match ResponseHeaderId::of(name) {
                ResponseHeaderId::Other => list.names.push(name.to_ascii_lowercase()),
                id => list.ids |= id.bit(),
            }
        }
        list.passes_date = list.ids & ResponseHeaderId::Date.bit() == 0;
        list.passes_server = list.ids & ResponseHeaderId::Server.bit() == 0;
        list
    }

    pub(crate) fn hides(&self, field: &ResponseField, bytes: &[u8]) -> bool {
        match field.id {
            ResponseHeaderId::Other => has_name(&self.names, field.name.of(bytes)),
            id => self.ids & id.bit() != 0,
        }
    }

    pub(crate) fn hides_name(&self, name: &[u8]) -> bool {
        match ResponseHeaderId::of(name) {
            ResponseHeaderId::Other => has_name(&self.names, name),
            id => self.ids & id.bit() != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden() {
        let list = HideList::new(
            &[b"Date", b"Server", b"X-Pad"],
            &[b"X-Mine".to_vec()],
            &[b"server".to_vec()],
        );
        assert!(
            list.hides_name(b"date") && list.hides_name(b"x-mine") && list.hides_name(b"X-Pad")
        );
        assert!(!list.hides_name(b"Server") && !list.hides_name(b"Vary"));
        assert!(list.passes_server && !list.passes_date);
    }
}
