//! What is shown of the tree: a place, of it the fields that are asked for, without what came in later versions.

use super::places::{self, Kind, Place, Target, PLACES, VERSION};
use super::refusal::{Outcome, Refusal};
use super::since;
use crate::tree::gather;
use std::sync::Arc;
use weir_core::counters::AllCounters;
use weir_core::figures::{Figure, Figures};
use weir_core::generation::Generation;
use weir_http::Request;

/// More names of fields in a request are not looked at.
const FIELDS_MAX: usize = 64;

/// `fields=`: which are shown; `None` for all.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Fields(Option<Vec<String>>);

impl Fields {
    /// Of a request's arguments.
    pub(crate) fn of(args: &[u8]) -> Fields {
        Fields(super::argument(args, b"fields=").map(|text| {
            let text = String::from_utf8_lossy(&text);
            let names = text.split(',').filter(|name| !name.is_empty());
            names.take(FIELDS_MAX).map(str::to_string).collect()
        }))
    }

    pub(crate) fn are_none(&self) -> bool {
        self.0.as_ref().is_some_and(Vec::is_empty)
    }

    fn choose(&self, figure: &mut Figure) {
        if let (Some(names), Figure::Group(group)) = (&self.0, figure) {
            group.retain(|name| names.iter().any(|wanted| wanted == name));
        }
    }
}

fn text(names: impl Iterator<Item = String>) -> Figure {
    Figure::List(names.map(Figure::Text).collect())
}

/// Of what a request that only looks is shown something, whoever makes it: a thread does where it may take long.
pub(crate) struct Asked {
    gen: Arc<Generation>,
    all: Arc<AllCounters>,
    /// That it came to.
    address: String,
}

impl Asked {
    pub(crate) fn of(r: &Request) -> Asked {
        let local = r.conn().local_addr();
        Asked {
            gen: Arc::clone(&r.gen().core),
            all: Arc::clone(&r.conn().worker.all),
            address: local.map(|local| local.ip().to_string()).unwrap_or_default(),
        }
    }

    /// All figures, in one document.
    pub(crate) fn document(&self) -> Vec<u8> {
        crate::document(&self.gen, &self.all, true)
    }
}

/// What a request that only looks gets.
pub(crate) fn show(
    asked: &Asked,
    version: u8,
    target: &Target,
    fields: &Fields,
) -> Outcome<Figure> {
    match target {
        Target::Versions => {
            Ok(Figure::List((1..=VERSION).map(|v| Figure::Number(v.into())).collect()))
        }
        Target::Folder(at) => folder(asked, version, at),
        Target::All(place) => Ok(all(asked, version, place, fields)),
        Target::Named(place, name) => {
            let mut one = named(asked, place, name)?;
            trim(&mut one, version);
            fields.choose(&mut one);
            Ok(one)
        }
    }
}

fn folder(asked: &Asked, version: u8, at: &str) -> Outcome<Figure> {
    let has_stream = weir_stream::reports(&asked.gen).1.is_some();
    if at == "stream" && !has_stream {
        return Err(Refusal::path());
    }
    let below = PLACES.iter().filter(|p| p.since <= version).filter_map(|p| {
        let name = match at {
            "" => p.path,
            _ => p.path.strip_prefix(at)?.strip_prefix('/')?,
        };
        (!name.contains('/') && (name != "stream" || has_stream)).then(|| name.to_string())
    });
    Ok(text(below))
}

fn all(asked: &Asked, version: u8, place: &Place, fields: &Fields) -> Figure {
    let mut figure = at(asked, place).unwrap_or_else(|| Figures::default().into());
    trim(&mut figure, version);
    if let Kind::One = place.kind {
        fields.choose(&mut figure);
        return figure;
    }
    match &mut figure {
        Figure::Group(group) if fields.are_none() => {
            return text(group.iter().map(|(name, _)| name.to_string()));
        }
        Figure::Group(group) => group.iter_mut().for_each(|(_, one)| fields.choose(one)),
        Figure::List(list) => list.iter_mut().for_each(|one| fields.choose(one)),
        _ => {}
    }
    figure
}

/// What stands at a place, counted from where its counting was begun anew.
fn at(asked: &Asked, place: &Place) -> Option<Figure> {
    let mut tree = gather(&asked.gen, &asked.all, place.path);
    since::apply(&mut tree);
    let mut figure = Figure::Group(tree);
    for part in place.path.split('/') {
        let Figure::Group(mut group) = figure else { return None };
        figure = group.take(part)?;
    }
    if place.path == "nginx" {
        if let Figure::Group(nginx) = &mut figure {
            nginx.put("address", &*asked.address);
        }
    }
    Some(figure)
}

/// One of the many.
fn named(asked: &Asked, place: &Place, name: &str) -> Outcome<Figure> {
    let Kind::Many(code, what) = place.kind else { return Err(Refusal::path()) };
    let missing = || Refusal::new(404, code, what);
    // Upstreams and caches are also asked for with a slash behind their names.
    let bare = name.strip_suffix('/').unwrap_or(name);
    match at(asked, place).ok_or_else(missing)? {
        Figure::Group(mut group) => {
            group.take(name).or_else(|| group.take(bare)).ok_or_else(missing)
        }
        Figure::List(list) => {
            let id: u64 = bare.parse().map_err(|_| missing())?;
            let is_it = |one: &Figure| matches!(one, Figure::Group(g) if g.number("id") == id && g.get("id").is_some());
            list.into_iter().find(is_it).ok_or_else(missing)
        }
        _ => Err(missing()),
    }
}

/// The place's figures, as they are counted, are from now on counted from here; `name`: of one of the many.
pub(crate) fn begin_anew(r: &Request, place: &Place, name: Option<&str>) -> Outcome<()> {
    if let Some(name) = name {
        named(&Asked::of(r), place, name)?;
    }
    let tree = gather(&r.gen().core, &r.conn().worker.all, place.path);
    let mut path: Vec<String> = place.path.split('/').map(str::to_string).collect();
    path.extend(name.map(|name| name.strip_suffix('/').unwrap_or(name).to_string()));
    since::begin_anew(&tree, path);
    Ok(())
}

fn trim(figure: &mut Figure, version: u8) {
    if version == VERSION {
        return;
    }
    match figure {
        Figure::Group(group) => {
            group.retain(|name| places::has(version, name));
            group.iter_mut().for_each(|(_, inner)| trim(inner, version));
        }
        Figure::List(list) => list.iter_mut().for_each(|inner| trim(inner, version)),
        _ => {}
    }
}
