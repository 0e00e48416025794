//! Makes an enum and tests of the list of mutants.

#[doc(hidden)]
#[macro_export]
macro_rules! __mutants {
    ($($(#[$doc:meta])* $test:ident $mutant:ident $case:ident;)+) => {
        /// A deliberate bug: the one place in which a backend, a subject or the harness differs from the reference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Mutant {
            $($(#[$doc])* $mutant,)+
        }

        impl Mutant {
            /// Every mutant.
            pub const ALL: &[Self] = &[$(Self::$mutant),+];

            /// The name of its test.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$mutant => stringify!($test),)+
                }
            }

            /// The case that must fail by an assertion of its own.
            pub fn caught_by(self) -> &'static str {
                match self {
                    $(Self::$mutant => stringify!($case),)+
                }
            }
        }
    };
}

/// Makes every mutant a `#[test]` of its own name, which passes when the suite catches it.
#[doc(hidden)]
#[macro_export]
macro_rules! __mutant_tests {
    ($($(#[$doc:meta])* $test:ident $mutant:ident $case:ident;)+) => {
        $(
            #[test]
            fn $test() {
                $crate::mutants::assert_caught($crate::mutants::Mutant::$mutant);
            }
        )+
    };
}
