//! Making the plans of a generation from the modules' handlers and filters.

use super::{PartFilters, Plan};
use crate::flow::{Filter, Handler, Phase, PhaseHandler, Reach};
use crate::module::HttpModule;
use foldhash::{HashMap, HashMapExt as _};
use std::sync::Arc;
use weir_module::Slots;

/// The plans of a generation.
pub(crate) struct Plans {
    handlers: Vec<&'static PhaseHandler>,
    /// Each with its module's `body_on_demand`.
    filters: Vec<(&'static Filter, bool)>,
    /// By which of the handlers, and then of the filters, are active.
    made: HashMap<Vec<bool>, Arc<Plan>>,
    /// Of the location that is looked at.
    active: Vec<bool>,
}

impl Plans {
    pub(crate) fn new(modules: &[&'static HttpModule]) -> Plans {
        let filters = modules.iter().filter_map(|m| Some((m.filter.as_ref()?, m.body_on_demand)));
        Plans {
            handlers: modules.iter().flat_map(|m| m.phases).collect(),
            filters: filters.collect(),
            made: HashMap::new(),
            active: Vec::new(),
        }
    }

    /// The plan of a location with this configuration.
    pub(crate) fn of(&mut self, slots: &Slots) -> Arc<Plan> {
        let handlers = self.handlers.iter().map(|h| (h.active)(slots));
        self.active.clear();
        self.active.extend(handlers.chain(self.filters.iter().map(|(f, _)| (f.active)(slots))));
        if let Some(made) = self.made.get(&self.active) {
            return Arc::clone(made);
        }
        let made = Arc::new(self.make(&self.active));
        self.made.insert(self.active.clone(), Arc::clone(&made));
        made
    }

    fn make(&self, active: &[bool]) -> Plan {
        let (of_handlers, of_filters) = active.split_at(self.handlers.len());
        let mut phases: [Vec<Handler>; Phase::COUNT] = Default::default();
        for (h, _) in self.handlers.iter().zip(of_handlers).filter(|(_, active)| **active) {
            phases[h.phase as usize].push(h.handler);
        }
        let all = self.filters.iter().zip(of_filters);
        let filters: Vec<_> = all.filter(|(_, active)| **active).map(|(f, _)| f).collect();
        let of_parts = |reaches: &[Reach]| {
            let of_part = filters.iter().map(|(f, _)| *f).filter(|f| reaches.contains(&f.reach));
            part_filters(&of_part.collect::<Vec<_>>())
        };
        let before = filters.iter().take_while(|(f, _)| f.reach != Reach::Whole);
        Plan {
            next_phase: next_phases(&phases),
            phases,
            header_places: places(filters.iter().map(|(f, _)| f)),
            header_filters: filters.iter().filter_map(|(f, _)| f.header).collect(),
            body_filters: filters.iter().filter_map(|(f, _)| f.body).collect(),
            of_parts: [of_parts(&[Reach::Every, Reach::Part]), of_parts(&[Reach::Every])],
            postpone_at: before.filter(|(f, _)| f.body.is_some()).count(),
            body_on_demand: filters.iter().all(|(f, on_demand)| f.body.is_none() || *on_demand),
        }
    }
}

fn next_phases(phases: &[Vec<Handler>; Phase::COUNT]) -> [Phase; Phase::Content as usize] {
    let mut next = Phase::BEFORE_CONTENT;
    for from in Phase::BEFORE_CONTENT {
        let filled = Phase::BEFORE_CONTENT.into_iter().filter(|p| !phases[*p as usize].is_empty());
        next[from as usize] = filled.into_iter().find(|p| *p >= from).unwrap_or(Phase::Content);
    }
    next
}

fn part_filters(filters: &[&'static Filter]) -> PartFilters {
    PartFilters {
        header_places: places(filters.iter()),
        header_filters: filters.iter().filter_map(|f| f.header).collect(),
        body_filters: filters.iter().filter_map(|f| f.body).collect(),
    }
}

/// For each header filter the place of its module's body filter among the body filters.
fn places<'a>(filters: impl Iterator<Item = &'a &'static Filter>) -> Vec<Option<usize>> {
    let mut bodies = 0;
    let mut places = Vec::new();
    for filter in filters {
        if filter.header.is_some() {
            places.push(filter.body.map(|_| bodies));
        }
        bodies += usize::from(filter.body.is_some());
    }
    places
}
