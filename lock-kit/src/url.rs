//! Parts of URLs that all backends have in common.

mod credentials;
mod parameters;

pub use credentials::{PasswordParameters, two_passwords};
pub use parameters::unknown_parameter;
