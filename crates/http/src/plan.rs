//! Which handlers and filters a location has. Locations with the same ones share the lists.

pub(crate) mod make;

use crate::flow::{BodyFilter, Handler, HeaderFilter, Phase};

/// The handlers and filters that are active in a location, in their order.
pub struct Plan {
    pub phases: [Vec<Handler>; Phase::COUNT],
    pub(crate) header_filters: Vec<HeaderFilter>,
    /// Of each of those the place of its module's body filter, if that has one.
    pub(crate) header_places: Vec<Option<usize>>,
    pub body_filters: Vec<BodyFilter>,
    /// Those that a subrequest's answer passes through here.
    pub(crate) part_header_filters: Vec<HeaderFilter>,
    pub(crate) part_header_places: Vec<Option<usize>>,
    pub(crate) part_body_filters: Vec<BodyFilter>,
    /// Behind how many body filters the output of subrequests joins that of the main request.
    pub(crate) postpone_at: usize,
    /// All of them act only on responses that their header filters chose.
    pub body_on_demand: bool,
}
