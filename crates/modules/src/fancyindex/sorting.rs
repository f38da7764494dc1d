//! The order of a listing: the configuration's, or the one that the request asks for as `?C=N&O=A`.

use std::cmp::Ordering;

use crate::directory::Entry;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    Name,
    Size,
    Date,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    pub by: By,
    pub descends: bool,
}

impl Order {
    pub const NAME: Order = Order { by: By::Name, descends: false };
}

pub const ORDERS: &[(&str, Order)] = &[
    ("name", Order::NAME),
    ("size", Order { by: By::Size, descends: false }),
    ("date", Order { by: By::Date, descends: false }),
    ("name_desc", Order { by: By::Name, descends: true }),
    ("size_desc", Order { by: By::Size, descends: true }),
    ("date_desc", Order { by: By::Date, descends: true }),
];

pub struct Sorting {
    pub case_sensitive: bool,
    pub directories_first: bool,
    pub default: Order,
    /// By the request.
    pub asked: Option<Order>,
}

/// `C=` with `N`, `S` or `M`, and `&O=` with `A` or `D`: nothing else is an order.
pub fn asked(args: &[u8]) -> Option<Order> {
    let (by, order) = match args {
        [b'C', b'=', by] => (by, b'A'),
        [b'C', b'=', by, b'&', b'O', b'=', order] => (by, *order),
        _ => return None,
    };
    let by = match by {
        b'M' => By::Date,
        b'S' => By::Size,
        _ => By::Name,
    };
    Some(Order { by, descends: order == b'D' })
}

impl Sorting {
    pub fn sort(&self, entries: &mut [Entry]) {
        let order = self.asked.unwrap_or(self.default);
        entries.sort_by(|a, b| {
            let groups = match self.directories_first {
                true => b.kind.is_dir().cmp(&a.kind.is_dir()),
                false => Ordering::Equal,
            };
            let within = match order.by {
                By::Name => self.names(a, b),
                By::Size => a.size.cmp(&b.size),
                By::Date => a.mtime.cmp(&b.mtime),
            };
            let within = if order.descends { within.reverse() } else { within };
            groups.then(within).then_with(|| a.name.cmp(&b.name))
        });
    }

    fn names(&self, a: &Entry, b: &Entry) -> Ordering {
        match self.case_sensitive {
            true => a.name.cmp(&b.name),
            false => {
                let lower = |e: &Entry| e.name.to_ascii_lowercase();
                lower(a).cmp(&lower(b))
            }
        }
    }

    /// What links to other directories carry, so that the order stays; nothing for the default.
    pub fn args(&self) -> &'static str {
        let Some(asked) = self.asked.filter(|asked| *asked != self.default) else { return "" };
        match (asked.by, asked.descends) {
            (By::Name, false) => "?C=N&amp;O=A",
            (By::Name, true) => "?C=N&amp;O=D",
            (By::Size, false) => "?C=S&amp;O=A",
            (By::Size, true) => "?C=S&amp;O=D",
            (By::Date, false) => "?C=M&amp;O=A",
            (By::Date, true) => "?C=M&amp;O=D",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_in_requests() {
        let order = |by, descends| Some(Order { by, descends });
        assert_eq!(asked(b"C=M&O=D"), order(By::Date, true));
        assert_eq!(asked(b"C=S"), order(By::Size, false));
        assert_eq!(asked(b"C=x&O=A"), order(By::Name, false));
        for text in [&b""[..], b"C=", b"C=MM", b"c=M", b"C=M&O=", b"C=M&P=D", b"a=1&C=M"] {
            assert_eq!(asked(text), None);
        }
    }
}
