//! A report as lists of rows, the same for every output.

use super::{Group, List, Report};
use crate::agent::{browser_name, system_name, Kind};
use crate::event::{Method, Moment, Protocol};
use crate::format::Invalid;
use crate::shown::visible;
use crate::sketch::{first, Few, GroupSet, Item, Weight};
use std::collections::HashMap;
use weir_base::date::Civil;

/// The figures of all together.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub valid: u64,
    pub invalid: u64,
    /// By their reasons, without those that did not happen.
    pub reasons: Vec<(&'static str, u64)>,
    /// Requests outside of the time that was asked for.
    pub outside: u64,
    pub bytes: u64,
    pub visitors: u64,
    /// The standard error of the visitors' count, as a part of it; 0: exact.
    pub visitors_error: f64,
    /// Different URLs that were found and are no files, files, URLs that were not found, referrers; each with its
    /// error as above.
    pub files: (u64, f64),
    pub statics: (u64, f64),
    pub missing: (u64, f64),
    pub referrers: (u64, f64),
    /// `2026-10-10 13:55:36`
    pub first: String,
    pub last: String,
    /// How long requests took, in microseconds, where the log says so.
    pub times: Option<Times>,
}

#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub count: u64,
    pub mean: u64,
    pub median: u64,
    pub p90: u64,
    pub p99: u64,
    pub most: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Fit to be shown, not escaped.
    pub name: String,
    /// `GET HTTP/1.1`, or what kind it is.
    pub note: String,
    /// The method and the protocol, where the note has them.
    pub asked: Option<(&'static str, &'static str)>,
    pub hits: u64,
    /// `None`: not counted.
    pub visitors: Option<u64>,
    pub bytes: u64,
    /// There may be so many more hits (of the heaviest: bytes).
    pub error: u64,
    /// In microseconds.
    pub mean_us: Option<u64>,
    pub longest_us: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Panel {
    /// Its name in JSON and CSV.
    pub id: &'static str,
    pub title: &'static str,
    /// What is ranked by, or what else is to be said.
    pub about: &'static str,
    /// How many different ones there were, and how far off that may be.
    pub total: (u64, f64),
    /// What is not listed came at most so often, if it is of those that were dropped.
    pub floor: u64,
    /// The standard error of its rows' visitors where they are many.
    pub visitors_error: f64,
    pub rows: Vec<Row>,
}

const DATED: &str = "by day";
const BY_HITS: &str = "by requests";

fn moment(at: Option<Moment>) -> String {
    at.map_or_else(String::new, |at| {
        let s = at.second;
        format!("{} {:02}:{:02}:{:02}", day(at.day), s / 3600, s / 60 % 60, s % 60)
    })
}

fn day(day: i32) -> String {
    let at = Civil::from_unix(i64::from(day) * 86_400);
    format!("{:04}-{:02}-{:02}", at.year, at.month, at.day)
}

/// A row with its method and protocol.
fn asked(tag: u16, row: Row) -> Row {
    let method = Method::ALL.get(usize::from(tag >> 8)).map_or("-", |m| m.name());
    let protocol = Protocol::ALL.get(usize::from(tag & 255)).map_or("-", |p| p.name());
    Row { note: format!("{method} {protocol}"), asked: Some((method, protocol)), ..row }
}

impl Report {
    pub fn summary(&self) -> Summary {
        let list = |list: List| self.lists[list as usize].distinct();
        let counts = Invalid::ALL.iter().map(|why| (why.name(), self.invalid[*why as usize]));
        let times = (self.times.total() > 0).then(|| Times {
            count: self.times.total(),
            mean: self.times.mean(),
            median: self.times.quantile(500),
            p90: self.times.quantile(900),
            p99: self.times.quantile(990),
            most: u64::from(self.times.most()),
        });
        Summary {
            valid: self.valid,
            invalid: self.invalid.iter().sum(),
            reasons: counts.filter(|(_, n)| *n > 0).collect(),
            outside: self.outside,
            bytes: self.bytes,
            visitors: self.visitors.count(),
            visitors_error: self.visitors.error(),
            files: list(List::Requests),
            statics: list(List::Static),
            missing: list(List::Missing),
            referrers: list(List::Referrers),
            first: moment(self.first),
            last: moment(self.last),
            times,
        }
    }

    /// Each with its first `top` rows; those without any are left out.
    pub fn panels(&self, top: usize) -> Vec<Panel> {
        let mut panels = vec![self.by_day(), self.by_hour()];
        for (list, id, title, about) in LISTED {
            panels.push(self.listed(*list, id, title, about, top));
        }
        panels.insert(5, self.entries(top));
        panels.insert(6, self.heavy(top));
        panels.insert(7, self.slow(top));
        panels.extend(self.grouped());
        panels.retain(|p| !p.rows.is_empty());
        panels
    }

    fn by_day(&self) -> Panel {
        let mut rows: Vec<Row> = self.days.iter().map(|(n, g)| row(day(*n), g)).collect();
        if self.other_days.hits > 0 {
            rows.push(row("other days".to_owned(), &self.other_days));
        }
        group_panel("visitors", "Visitors", DATED, rows)
    }

    fn by_hour(&self) -> Panel {
        let hours = self.hours.iter().enumerate().map(|(n, g)| row(format!("{n:02}:00"), g));
        let rows = if self.valid == 0 { Vec::new() } else { hours.collect() };
        group_panel("hours", "Hours of the day", "by the log's clock", rows)
    }

    fn listed(
        &self,
        list: List,
        id: &'static str,
        title: &'static str,
        about: &'static str,
        top: usize,
    ) -> Panel {
        let table = &self.lists[list as usize];
        let kind = |item: &Item| Kind::ALL.get(usize::from(item.tag)).map_or("", |k| k.name());
        let noted = |item: &Item| match list {
            List::Requests | List::Static | List::Missing => asked(item.tag, listed(item)),
            List::Bots => Row { note: kind(item).to_owned(), ..listed(item) },
            _ => listed(item),
        };
        let rows = table.first(top).into_iter().map(noted).collect();
        let visitors_error = Few::standard_error();
        Panel {
            id,
            title,
            about,
            total: table.distinct(),
            floor: table.floor().hits,
            visitors_error,
            rows,
        }
    }

    /// What was asked for by whatever method and protocol is one page.
    fn entries(&self, top: usize) -> Panel {
        let table = &self.lists[List::Requests as usize];
        let mut pages: HashMap<&[u8], Row> = HashMap::new();
        for (_, item) in table.items().filter(|(_, item)| item.entries > 0) {
            let row = pages.entry(&item.key).or_default();
            row.hits += item.entries;
            row.error += item.error;
        }
        let named = pages.into_iter().map(|(key, row)| Row { name: visible(key), ..row });
        let rows = sorted(named.collect());
        let total = (rows.len() as u64, 0.0);
        let floor = table.floor().hits;
        let rows = rows.into_iter().take(top).collect();
        let about = "pages that people came to from elsewhere";
        Panel { total, floor, ..group_panel("entries", "Entry points", about, rows) }
    }

    fn heavy(&self, top: usize) -> Panel {
        let lists =
            [List::Requests, List::Static, List::Missing].map(|list| &self.lists[list as usize]);
        let items = lists.iter().flat_map(|table| table.items()).map(|(_, item)| item);
        let rows = first(items, Weight::Bytes, top)
            .into_iter()
            .map(|item| asked(item.tag, Row { error: item.bytes_error, ..listed(item) }));
        let about = "by all bytes sent";
        let floor = lists.iter().map(|table| table.floor().bytes).max().unwrap_or(0);
        let visitors_error = Few::standard_error();
        Panel {
            floor,
            visitors_error,
            ..group_panel("heaviest", "Heaviest URLs", about, rows.collect())
        }
    }

    fn slow(&self, top: usize) -> Panel {
        let rows = self.slowest.first(top).into_iter().map(|slow| {
            let longest_us = Some(u64::from(slow.longest_us));
            asked(slow.tag, Row { name: visible(&slow.key), longest_us, ..Row::default() })
        });
        let about = "by the longest request";
        Panel { total: (0, 0.0), ..group_panel("slowest", "Slowest URLs", about, rows.collect()) }
    }

    fn grouped(&self) -> Vec<Panel> {
        let named = |groups: &[Group], name: &dyn Fn(usize) -> &'static str| {
            let mut rows: Vec<Row> = Vec::new();
            for (n, group) in groups.iter().enumerate().filter(|(_, g)| g.hits > 0) {
                rows.push(row(name(n).to_owned(), group));
            }
            sorted(rows)
        };
        let mut systems = self.systems.to_vec();
        // Several words of the table mean the same.
        for n in 1..systems.len() {
            let name = system_name(n as u8);
            let first = (0..n).find(|m| system_name(*m as u8) == name);
            if let Some(first) = first {
                let group = std::mem::take(&mut systems[n]);
                systems[first].merge(&group);
            }
        }
        let statuses = self.statuses.iter().enumerate().filter(|(_, g)| g.hits > 0);
        let statuses = statuses.map(|(status, g)| row(status.to_string(), g));
        vec![
            group_panel("systems", "Systems", BY_HITS, named(&systems, &|n| system_name(n as u8))),
            group_panel(
                "browsers",
                "Browsers",
                BY_HITS,
                named(&self.browsers, &|n| browser_name(n as u8)),
            ),
            group_panel(
                "bot_kinds",
                "Robots, what they are for",
                BY_HITS,
                named(&self.kinds, &|n| Kind::ALL[n].name()),
            ),
            group_panel("status_codes", "Status codes", "by number", statuses.collect()),
            group_panel(
                "methods",
                "Methods",
                BY_HITS,
                named(&self.methods, &|n| Method::ALL[n].name()),
            ),
            group_panel(
                "protocols",
                "Protocols",
                BY_HITS,
                named(&self.protocols, &|n| Protocol::ALL[n].name()),
            ),
        ]
    }
}

type Listed = (List, &'static str, &'static str, &'static str);

const LISTED: &[Listed] = &[
    (List::Requests, "requests", "Requests", "URLs that were found and are no files"),
    (List::Static, "static_requests", "Static files", "by their extensions"),
    (List::Missing, "not_found", "Not found", "answered by 404"),
    (List::Hosts, "hosts", "Hosts", "clients by requests"),
    (List::Countries, "countries", "Countries", BY_HITS),
    (List::Networks, "networks", "Networks", BY_HITS),
    (List::Sites, "referring_sites", "Referring sites", BY_HITS),
    (List::Referrers, "referrers", "Referrers", BY_HITS),
    (List::VirtualHosts, "vhosts", "Virtual hosts", BY_HITS),
    (List::Browsers, "browser_versions", "Browsers with their versions", BY_HITS),
    (List::Bots, "bots", "Robots", "by the name that they give"),
    (
        List::Liars,
        "liars",
        "Who is not what they say",
        "robots from elsewhere, browsers that look for holes",
    ),
];

fn listed(item: &Item) -> Row {
    Row {
        name: visible(&item.key),
        hits: item.hits,
        visitors: Some(item.visitors.count()),
        bytes: item.bytes,
        error: item.error,
        mean_us: item.time_us.checked_div(item.timed),
        longest_us: (item.timed > 0).then_some(u64::from(item.longest_us)),
        ..Row::default()
    }
}

fn row(name: String, group: &Group) -> Row {
    Row {
        name,
        hits: group.hits,
        visitors: Some(group.visitors.count()),
        bytes: group.bytes,
        ..Row::default()
    }
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|a, b| b.hits.cmp(&a.hits).then_with(|| a.name.cmp(&b.name)));
    rows
}

fn group_panel(
    id: &'static str,
    title: &'static str,
    about: &'static str,
    rows: Vec<Row>,
) -> Panel {
    let total = (rows.len() as u64, 0.0);
    Panel { id, title, about, total, floor: 0, visitors_error: GroupSet::standard_error(), rows }
}
