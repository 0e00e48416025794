//! The macro that makes tests of the cases.

/// Makes each case a `#[test]` with its own name, in a module with the given name.
///
/// `conformance!(redis, RedisHarness);` is for a backend with a [`BackendHarness`](crate::BackendHarness).
/// `conformance!(subject other, OtherHarness);` is for a lock library with a [`Harness`](crate::Harness): only the subject
/// cases.
///
/// `conformance!(one_permit redis_permit, RedisHarness);` runs the raw cases of exclusive locks again, where the lock is a
/// semaphore of one permit. Cases of passes, of minimum holds and of following are skipped there.
///
/// `conformance!(only [a_release_wakes_a_waiter tokens_grow_over_a_release] redis_slow, RedisHarness);` is for these cases alone,
/// where the others would show nothing more. `conformance!(subject only [an_empty_name_is_refused] other, OtherHarness);` is the same for a
/// lock library. A name that is no case, or none for such a library, fails when the test runs.
#[macro_export]
macro_rules! conformance {
    (subject $module:ident, $harness:ty) => {
        mod $module {
            use super::*;
            $crate::__for_each_case!(__subject_tests[$harness]);
        }
    };
    (subject only [$($case:ident)+] $module:ident, $harness:ty) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::subject_test::<$harness>(module_path!(), stringify!($case));
                }
            )+
        }
    };
    (one_permit $module:ident, $harness:ty) => {
        mod $module {
            use super::*;
            $crate::__for_each_case!(__one_permit_tests[$harness]);
        }
    };
    (only [$($case:ident)+] $module:ident, $harness:ty) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::test::<$harness>(module_path!(), stringify!($case));
                }
            )+
        }
    };
    ($module:ident, $harness:ty) => {
        mod $module {
            use super::*;
            $crate::__for_each_case!(__tests[$harness]);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ([$harness:ty] $($layer:ident $server:ident $topic:ident :: $case:ident $(proves $guarantee:literal)?;)+) => {
        $(
            #[test]
            fn $case() {
                $crate::test::<$harness>(module_path!(), stringify!($case));
            }
        )+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __subject_tests {
    ([$harness:ty] $($layer:ident $server:ident $topic:ident :: $case:ident $(proves $guarantee:literal)?;)+) => {
        $($crate::__subject_test!([$harness] $layer $case);)+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __subject_test {
    ([$harness:ty] Raw $case:ident) => {};
    ([$harness:ty] Modes $case:ident) => {};
    ([$harness:ty] Subject $case:ident) => {
        #[test]
        fn $case() {
            $crate::subject_test::<$harness>(module_path!(), stringify!($case));
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __one_permit_tests {
    ([$harness:ty] $($layer:ident $server:ident $topic:ident :: $case:ident $(proves $guarantee:literal)?;)+) => {
        $($crate::__one_permit_test!([$harness] $layer $case);)+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __one_permit_test {
    ([$harness:ty] Subject $case:ident) => {};
    ([$harness:ty] Modes $case:ident) => {};
    ([$harness:ty] Raw $case:ident) => {
        #[test]
        fn $case() {
            $crate::one_permit_test::<$harness>(module_path!(), stringify!($case));
        }
    };
}

/// A lock library that is no backend runs the cases above the raw layer.
#[cfg(test)]
mod tests {
    use crate::reference::ReferenceHarness;

    crate::conformance!(subject whole, ReferenceHarness);

    crate::conformance!(subject only [an_empty_name_is_refused a_dropped_guard_releases] part, ReferenceHarness);

    #[test]
    #[should_panic(expected = "there is no case \"no_such_case\"")]
    fn a_name_that_is_no_case_is_said() {
        crate::subject_test::<ReferenceHarness>("crate::tests", "no_such_case");
    }

    #[test]
    #[should_panic(expected = "an_unanswered_grant_is_undone is for backends alone")]
    fn a_case_for_backends_alone_is_said() {
        crate::subject_test::<ReferenceHarness>("crate::tests", "an_unanswered_grant_is_undone");
    }
}
