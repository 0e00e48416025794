//! From the list of cases to tests.

/// Makes every case a `#[test]` of its own name, in a module of the name given.
///
/// `conformance!(redis, RedisHarness);` is for a backend, whose harness is a
/// [`BackendHarness`](crate::BackendHarness). `conformance!(subject other, OtherHarness);` is for a lock library that
/// is no backend: only the cases above the raw layer, on a [`Harness`](crate::Harness).
#[macro_export]
macro_rules! conformance {
    (subject $module:ident, $harness:ty) => {
        mod $module {
            use super::*;
            $crate::__for_each_case!(__subject_tests[$harness]);
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
    ([$harness:ty] $($layer:ident $server:ident $topic:ident :: $case:ident;)+) => {
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
    ([$harness:ty]) => {};
    ([$harness:ty] Subject $server:ident $topic:ident :: $case:ident; $($rest:tt)*) => {
        #[test]
        fn $case() {
            $crate::subject_test::<$harness>(module_path!(), stringify!($case));
        }
        $crate::__subject_tests!([$harness] $($rest)*);
    };
    ([$harness:ty] Raw $server:ident $topic:ident :: $case:ident; $($rest:tt)*) => {
        $crate::__subject_tests!([$harness] $($rest)*);
    };
}
