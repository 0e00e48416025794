//! The key that holds the fence of a resource.

use lock_core::{Error, ErrorKind, Result};

use crate::names::hash_tag;

/// The key of a resource and that of its fence, in one hash slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FenceKeys {
    pub(super) fence: String,
    pub(super) resource: String,
}

impl FenceKeys {
    pub(super) fn new(resource: String) -> Result<Self> {
        let fence = match hash_tag(&resource) {
            Some(tag) => format!("{{{tag}}}:entered:{resource}"),
            None if !resource.is_empty() && !resource.contains('}') => format!("{{{resource}}}:entered"),
            None => {
                let what = format!(
                    "no fence can lie in the hash slot of the key {resource:?}: give it a hash tag, like {{x}}, or no '}}'"
                );
                return Err(Error::new(ErrorKind::Misconfigured, what));
            }
        };
        Ok(Self { fence, resource })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_lies_beside_its_resource() {
        let cases = [
            ("stock:42", "{stock:42}:entered"),
            ("{shop}:stock", "{shop}:entered:{shop}:stock"),
            ("a{b}c", "{b}:entered:a{b}c"),
            ("a{b", "{a{b}:entered"),
        ];
        for (resource, fence) in cases {
            let keys = FenceKeys::new(resource.into()).expect("it can have one");
            assert_eq!((&*keys.fence, &*keys.resource), (fence, resource));
            assert_eq!(hash_tag(fence), Some(hash_tag(resource).unwrap_or(resource)));
        }
        for resource in ["", "a}b", "{}a"] {
            let error = FenceKeys::new(resource.into()).expect_err("it cannot");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{resource}");
        }
    }
}
