//! Names with a hold or a queue, in pages. By capability.

use std::collections::BTreeSet;
use std::sync::Arc;

use lock_core::backend::{DistributedLock, ListFrom};
use lock_core::{ErrorKind, Locker};

use crate::context::RawCx;
use crate::raw::Grant;
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure};

/// More pages than any case has names.
const MOST_PAGES: usize = 10_000;

/// All pages of about so many names, and how many names the longest one had. `between` is done after each.
async fn pages<F: Future<Output = Verdict>>(
    cx: &RawCx,
    client: &Arc<dyn DistributedLock>,
    from: ListFrom,
    at_most: usize,
    mut between: impl FnMut() -> F,
) -> Result<(BTreeSet<String>, usize), Stop> {
    let (mut names, mut next) = (BTreeSet::new(), Some(from));
    let (mut count, mut longest) = (0, 0);
    while let Some(from) = next {
        let page = cx.soon("a page of names", client.list(&from, at_most)).await?;
        let page = page.or_fail("list")?;
        names.extend(page.names.iter().map(|name| name.as_str().to_owned()));
        longest = page.names.len().max(longest);
        count += 1;
        ensure!(count < MOST_PAGES, "{count} pages, and no end");
        next = page.next;
        between().await?;
    }
    Ok((names, longest))
}

async fn listed(
    cx: &RawCx,
    client: &Arc<dyn DistributedLock>,
    prefix: &str,
    at_most: usize,
) -> Result<BTreeSet<String>, Stop> {
    let from = ListFrom::prefix(prefix);
    Ok(pages(cx, client, from, at_most, async || Ok(())).await?.0)
}

async fn hold_all(
    cx: &RawCx,
    client: &Arc<dyn DistributedLock>,
    names: impl IntoIterator<Item = &str>,
) -> Result<Vec<Grant>, Stop> {
    let mut grants = Vec::new();
    for name in names {
        grants.push(cx.grant(client, name).await?);
    }
    Ok(grants)
}

fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// Those that are held and no other ones, whatever the size of a page, and for another client too. By capability.
pub(crate) async fn names_that_are_held_are_listed(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::List).await?;
    let other = cx.connected().await?;
    ensure!(
        listed(cx, &client, "", 10).await?.is_empty(),
        "names before anybody holds one"
    );
    let names = ["a", "b", "c", "d", "e"];
    let grants = hold_all(cx, &client, names).await?;
    for (client, at_most) in [(&client, 1), (&other, 2), (&other, 5), (&client, 100)] {
        let listed = listed(cx, client, "", at_most).await?;
        ensure!(listed == set(names), "{names:?} are held, and listed are {listed:?}");
    }
    let waiter = cx.wait_for(&other, "c", cx.long_ttl().await).await?;
    grants[0].release().await?;
    let rest = listed(cx, &client, "", 2).await?;
    ensure!(
        rest == set(["b", "c", "d", "e"]),
        "one was released, and listed are {rest:?}"
    );
    grants[2].release().await?;
    let next = waiter.grant_soon(cx, "the waiter to be granted").await?;
    let rest = listed(cx, &other, "", 2).await?;
    ensure!(rest.contains("c"), "held by the next one, and listed are {rest:?}");
    next.release().await?;
    for grant in [&grants[1], &grants[3], &grants[4]] {
        grant.release().await?;
    }
    let rest = listed(cx, &client, "", 10).await?;
    ensure!(rest.is_empty(), "all are released, and listed are {rest:?}");
    Ok(())
}

/// A prefix is no pattern, and where its letters stand elsewhere in a name, that is not listed. By capability.
pub(crate) async fn names_with_a_prefix_are_listed(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::List).await?;
    let names = [
        "orders/1",
        "orders/2",
        "orders",
        "old/orders/3",
        "Orders/4",
        "o%/5",
        "o*/6",
        "ord",
    ];
    let grants = hold_all(cx, &client, names).await?;
    for prefix in ["orders/", "orders", "o", "o%", "o*", "old/", "nobody's", "orders/1"] {
        let expected = set(names.into_iter().filter(|name| name.starts_with(prefix)));
        let listed = listed(cx, &client, prefix, 2).await?;
        ensure!(
            listed == expected,
            "with {prefix:?} begin {expected:?}, and listed are {listed:?}"
        );
    }
    for grant in grants {
        grant.release().await?;
    }
    Ok(())
}

/// A name is listed as it was given, whatever it looks like at the server. By capability.
pub(crate) async fn hostile_names_are_listed(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::List).await?;
    let names = [
        "a{b}c",
        "{a}",
        "a}b",
        "100%",
        "%2F",
        "a/b",
        "/",
        ".",
        "..",
        "a\0b",
        "a b\n",
        "schön 日本",
        "a:fence",
        "a:lock",
        "*",
        "[a]?",
        "'; --",
        "\\",
    ];
    let grants = hold_all(cx, &client, names).await?;
    let listed = listed(cx, &client, "", 3).await?;
    let missing: Vec<_> = set(names).difference(&listed).cloned().collect();
    let strange: Vec<_> = listed.difference(&set(names)).cloned().collect();
    ensure!(
        missing.is_empty() && strange.is_empty(),
        "not listed are {missing:?}, and listed are {strange:?}"
    );
    for grant in grants {
        grant.release().await?;
    }
    Ok(())
}

/// Names come and go between the pages: those that stay are all listed, and the list ends. No page has them all. By capability.
pub(crate) async fn pages_under_change_miss_no_held_name(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::List).await?;
    let other = cx.connected().await?;
    let steady: Vec<String> = (0..12).map(|number| format!("{number:02}-steady")).collect();
    let going: Vec<String> = (0..12).map(|number| format!("{number:02}-going")).collect();
    let coming: Vec<String> = (0..6).map(|number| format!("z{number}-coming")).collect();
    let stays = hold_all(cx, &client, steady.iter().map(String::as_str)).await?;
    let leaves = hold_all(cx, &client, going.iter().map(String::as_str)).await?;
    let (came, round) = (tokio::sync::Mutex::new(Vec::new()), std::cell::Cell::new(0));
    let (names, longest) = pages(cx, &other, ListFrom::all(), 2, || {
        let number = round.replace(round.get() + 1);
        let (leaves, coming, came, client) = (&leaves, &coming, &came, &client);
        async move {
            if let Some(grant) = leaves.get(number) {
                grant.release().await?;
            }
            if let Some(name) = coming.get(number) {
                came.lock().await.push(cx.grant(client, name).await?);
            }
            Ok(())
        }
    })
    .await?;
    for name in &steady {
        ensure!(
            names.contains(name),
            "{name:?} was held all the time, and listed are {names:?}"
        );
    }
    // A server may list more names than it is asked for, such as whole buckets of a hash table. With few names a page has all of them by chance.
    let all = steady.len() + going.len();
    ensure!(
        longest < all,
        "{all} names are held, and a page of about 2 names has {longest}"
    );
    let known: BTreeSet<_> = steady.iter().chain(&going).chain(&coming).cloned().collect();
    ensure!(
        names.is_subset(&known),
        "never held, and listed: {:?}",
        names.difference(&known)
    );
    for grant in stays.iter().chain(leaves.iter().skip(round.get())) {
        grant.release().await?;
    }
    for grant in came.into_inner() {
        grant.release().await?;
    }
    Ok(())
}

/// If listing is not declared, it is rejected.
pub(crate) async fn without_it_a_list_is_unsupported(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    let locks = Locker::from_backend(client.clone());
    let page = cx.soon("a page of names", locks.list(&ListFrom::all(), 1)).await?;
    if Capability::List.is_in(client.capabilities()) {
        return page.or_fail("list").map(drop);
    }
    ensure!(
        page.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported),
        "it is not declared, and {page:?}"
    );
    Ok(())
}
