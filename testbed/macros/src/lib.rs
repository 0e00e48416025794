//! The attribute [`macro@test`], which `testbed` hands on.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{ItemFn, parse_macro_input, parse_quote};

/// A test that needs a real server.
///
/// With `POLYLOCK_OFFLINE=1` it is skipped, visibly: it prints the line `SKIP name-of-the-test: reason` past the test
/// harness. An async test runs as by `tokio::test`, whose arguments this attribute takes.
///
/// ```ignore
/// #[testbed::test(flavor = "multi_thread", worker_threads = 2)]
/// async fn a_released_name_is_free() {
///     let redis = testbed::Redis::new().start().await.unwrap();
/// }
/// ```
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(&arguments.into(), parse_macro_input!(item)).into()
}

fn expand(arguments: &Tokens, mut function: ItemFn) -> Tokens {
    let attribute = match function.sig.asyncness {
        Some(_) => quote!(::tokio::test(#arguments)),
        None => quote!(::core::prelude::v1::test),
    };
    let body = function.block;
    function.block = parse_quote!({
        if ::testbed::skip_offline() {
            return;
        }
        #body
    });
    quote! {
        #[#attribute]
        #function
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::{Tokens, expand};

    fn expanded(arguments: Tokens, function: Tokens) -> String {
        expand(&arguments, syn::parse2(function).unwrap()).to_string()
    }

    #[test]
    fn an_async_test_runs_on_tokio_with_these_arguments() {
        let text = expanded(
            quote!(start_paused = true),
            quote!(
                async fn a() {
                    work().await
                }
            ),
        );
        assert!(text.contains("tokio :: test (start_paused = true)"), "{text}");
        assert!(
            text.contains("if :: testbed :: skip_offline () { return ; } { work () . await }"),
            "{text}"
        );
    }

    #[test]
    fn another_test_needs_no_runtime() {
        let text = expanded(
            quote!(),
            quote!(
                #[should_panic]
                fn a() {
                    work()
                }
            ),
        );
        assert!(
            text.starts_with("# [:: core :: prelude :: v1 :: test] # [should_panic] fn a ()"),
            "{text}"
        );
        assert!(text.contains("skip_offline"), "{text}");
    }
}
