//! Which handlers and filters a location has. Locations with the same ones share the lists.

pub(crate) mod make;

use crate::flow::{BodyFilter, Handler, HeaderFilter, Phase};

/// The handlers and filters that are active in a location, in their order.
pub struct Plan {
    pub phases: [Vec<Handler>; Phase::COUNT],
    /// For each phase the first from it on that has handlers, or else content's.
    next_phase: [Phase; Phase::Content as usize],
    pub(crate) header_filters: Vec<HeaderFilter>,
    /// Of each of those the place of its module's body filter, if that has one.
    pub(crate) header_places: Vec<Option<usize>>,
    pub body_filters: Vec<BodyFilter>,
    /// Those that a subrequest's answer passes through here, and those that a captured one does.
    pub(crate) of_parts: [PartFilters; 2],
    /// Behind how many body filters the output of subrequests joins that of the main request.
    pub(crate) postpone_at: usize,
    /// All of them act only on responses that their header filters chose.
    pub body_on_demand: bool,
}

/// What answers of subrequests of one kind pass through; the fields are as in [`Plan`].
pub(crate) struct PartFilters {
    pub(crate) header_filters: Vec<HeaderFilter>,
    pub(crate) header_places: Vec<Option<usize>>,
    pub(crate) body_filters: Vec<BodyFilter>,
}

impl Plan {
    /// The filters of a subrequest.
    pub(crate) fn of_part(&self, is_captured: bool) -> &PartFilters {
        &self.of_parts[usize::from(is_captured)]
    }

    /// The first phase from that one on in which something is done.
    #[inline]
    pub(crate) fn from(&self, phase: Phase) -> Phase {
        self.next_phase.get(phase as usize).copied().unwrap_or(phase)
    }
}
