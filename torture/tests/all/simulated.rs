//! What only computes, without servers and clocks. The test command runs it beside other tests.

mod models;
mod quorum;
