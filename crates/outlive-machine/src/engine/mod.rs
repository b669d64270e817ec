//! Time: events in one total order.
