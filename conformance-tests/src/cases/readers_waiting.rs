//! Readers and writers wait in one queue, in which neither starves. By capability.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_core::backend::Mode::{Exclusive, Shared};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::context::RawCx;
use crate::link::Link;
use crate::raw::{A_MOMENT, drive, ensure_in_line, ensure_waiting, granted, request_in};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe_by_ttl};

/// A writer that waits for readers gets the name when the last of them releases it, and not before.
pub(crate) async fn the_last_reader_admits_the_writer(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let (other, writer) = (cx.connected().await?, cx.connected().await?);
    let first = cx.grant_in(&client, "a", Shared).await?;
    let last = cx.grant_in(&other, "a", Shared).await?;
    let writing = cx.wait_in(&writer, "a", Exclusive).await?;
    first.release().await?;
    ensure_waiting(&[&writing], "while a reader held it").await?;
    last.release().await?;
    let what = "the writer to be granted after the last reader";
    writing.grant_soon(cx, what).await?.release().await
}

/// All readers that wait for a writer get the name when it releases, none after another.
pub(crate) async fn waiting_readers_enter_together(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let writer = cx.grant_in(&client, "a", Exclusive).await?;
    let mut waiting = Vec::new();
    for number in 0..3 {
        waiting.push(cx.wait_in(&cx.connected().await?, "a", Shared).await?);
        cx.until_places("a", number + 1).await?;
    }
    writer.release().await?;
    let mut readers = Vec::new();
    for waiter in waiting {
        let what = "all waiting readers to be granted together";
        readers.push(waiter.grant_soon(cx, what).await?);
    }
    for reader in readers {
        reader.release().await?;
    }
    cx.until_free("a", "all readers have released").await
}

/// A reader that comes after a waiting writer does not get the name before it, though readers hold it. By capability.
pub(crate) async fn a_reader_does_not_pass_a_waiting_writer(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    Capability::Fifo.or_skip(client.capabilities())?;
    let (writer, late) = (cx.connected().await?, cx.connected().await?);
    let reader = cx.grant_in(&client, "a", Shared).await?;
    let writing = cx.wait_in(&writer, "a", Exclusive).await?;
    cx.until_places("a", 1).await?;
    for other in [&client, &late] {
        cx.ensure_passes_nobody(other, "a", Shared).await?;
    }
    let reading = cx.wait_in(&late, "a", Shared).await?;
    ensure_waiting(&[&writing], "while a reader held it").await?;
    ensure_in_line(&[&reading], "while a reader held it and a writer waited").await?;
    reader.release().await?;
    let written = writing.grant_soon(cx, "the writer to be granted").await?;
    ensure_waiting(&[&reading], "while the writer held it").await?;
    written.release().await?;
    let what = "the reader behind the writer to be granted";
    reading.grant_soon(cx, what).await?.release().await
}

/// A writer that comes after waiting readers does not get the name before them. By capability.
pub(crate) async fn a_writer_does_not_pass_waiting_readers(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    Capability::Fifo.or_skip(client.capabilities())?;
    let holder = cx.grant_in(&client, "a", Exclusive).await?;
    let mut waiting = Vec::new();
    for number in 0..2 {
        waiting.push(cx.wait_in(&cx.connected().await?, "a", Shared).await?);
        cx.until_places("a", number + 1).await?;
    }
    let writing = cx.wait_in(&cx.connected().await?, "a", Exclusive).await?;
    cx.until_places("a", 3).await?;
    holder.release().await?;
    let mut readers = Vec::new();
    for waiter in waiting {
        let what = "a reader before a waiting writer to be granted";
        readers.push(waiter.grant_soon(cx, what).await?);
    }
    for reader in readers {
        ensure_waiting(&[&writing], "while a reader held it").await?;
        reader.release().await?;
    }
    let what = "the writer behind the readers to be granted";
    writing.grant_soon(cx, what).await?.release().await
}

/// A writer gets the name in the end, though there is never a moment without a reader that wants it.
pub(crate) async fn a_writer_gets_in_under_steady_readers(cx: &RawCx) -> Verdict {
    const READERS: u32 = 3;
    let writer = cx.client_with(Capability::Shared).await?;
    let inside = Arc::new(Inside::default());
    let mut readers = JoinSet::new();
    for number in 0..READERS {
        let reader = read_steadily(cx, number, inside.clone()).await?;
        readers.spawn(reader);
    }
    let all_read = async {
        while inside.now.load(Ordering::SeqCst) < 2 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    cx.soon("the readers to overlap", all_read).await?;
    let (request, control) = cx.request_in("a", Exclusive).await?;
    let writing = cx.go_on_waiting(&writer, request, control);
    let what = "a writer to be granted under steady readers";
    let written = writing.grant_soon(cx, what).await?;
    let reading = inside.now.load(Ordering::SeqCst);
    ensure_safe_by_ttl!(reading == 0, "{reading} readers were inside with the writer");
    inside.is_over.store(true, Ordering::SeqCst);
    written.release().await?;
    while let Some(reader) = cx.soon("the readers to end", readers.join_next()).await? {
        reader.map_err(|panic| Stop::assertion(panic.to_string()))??;
    }
    cx.until_free("a", "readers and a writer have released").await
}

#[derive(Debug, Default)]
struct Inside {
    now: AtomicU32,
    is_over: AtomicBool,
}

/// Reads again and again, at other moments than the readers of other numbers.
async fn read_steadily(
    cx: &RawCx,
    number: u32,
    inside: Arc<Inside>,
) -> Result<impl Future<Output = Verdict> + use<>, Stop> {
    let (client, ttl) = (cx.connected().await?, cx.long_ttl().await);
    Ok(async move {
        sleep(Duration::from_millis(u64::from(10 * number))).await;
        while !inside.is_over.load(Ordering::SeqCst) {
            let (request, control) = request_in("a", Shared, ttl)?;
            let attempt = drive(&*client, &request).await.or_fail("read")?;
            let Ok(grant) = granted(attempt, request, control)? else {
                return Err(Stop::assertion("a reader that waits for ever was busy"));
            };
            inside.now.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_millis(30)).await;
            inside.now.fetch_sub(1, Ordering::SeqCst);
            grant.release().await?;
        }
        Ok(())
    })
}

/// A reader that waits behind a waiting writer gets the name when that writer leaves, beside the readers that hold it.
pub(crate) async fn a_waiting_writer_that_leaves_lets_readers_in(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let (writer, late) = (cx.connected().await?, cx.connected().await?);
    let reader = cx.grant_in(&client, "a", Shared).await?;
    let writing = cx.wait_in(&writer, "a", Exclusive).await?;
    cx.until_places("a", 1).await?;
    let (request, control) = cx.request_in("a", Shared).await?;
    let reading = cx.go_on_waiting(&late, request, control);
    sleep(A_MOMENT).await;
    writing.abandon(cx, &writer).await?;
    let what = "the reader to be granted when the writer before it has left";
    let second = reading.grant_soon(cx, what).await?;
    ensure!(reader.is_live(), "the first reader lost it meanwhile");
    reader.release().await?;
    second.release().await?;
    cx.until_free("a", "all readers have released").await
}

/// A waiting writer whose client is dead stops no readers for ever.
pub(crate) async fn a_dead_waiting_writer_does_not_stop_readers(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let dead = cx.client_through(&link, Capability::Shared).await?;
    let (client, late) = (cx.connected().await?, cx.connected().await?);
    let reader = cx.grant_in(&client, "a", Shared).await?;
    let (request, control) = cx.request_in_for("a", Exclusive, ttl)?;
    let _writing = cx.wait_with(&dead, request, control).await?;
    cx.until_places("a", 1).await?;
    link.cut();
    let (request, control) = cx.request_in("a", Shared).await?;
    let reading = cx.go_on_waiting(&late, request, control);
    let what = "a reader to be granted behind a dead writer";
    let second = reading.grant(cx, cx.freed_by(2 * ttl), what).await?;
    ensure!(reader.is_live(), "the first reader lost it meanwhile");
    reader.release().await?;
    second.release().await
}
