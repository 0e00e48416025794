//! A web service that ships each order once at a time. It answers 409 if the order is taken, and 503 if the lock server
//! is unavailable.
//!
//! ```text
//! cargo run --example service --features redis -- redis://127.0.0.1:6379 127.0.0.1:3000
//! curl --request POST http://127.0.0.1:3000/orders/42/ship
//! ```

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use polylock::{ErrorKind, Locker};
use tokio::net::TcpListener;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or("memory:".into());
    let address = arguments.next().unwrap_or("127.0.0.1:3000".into());
    let locks = polylock::connect(&url).await?; // fails now, not at the first request
    let app = Router::new().route("/orders/{id}/ship", post(ship));
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let server = axum::serve(listener, app.with_state(locks.clone()));
    server.with_graceful_shutdown(stopped()).await?;
    println!("all requests are answered");
    locks.shutdown().await?; // releases the guards of clients that hung up
    println!("all locks are released");
    Ok(())
}

/// If the client hangs up, axum drops this future. The guard is dropped with it, and released in the background.
async fn ship(State(locks): State<Locker>, Path(id): Path<u64>) -> Result<String, (StatusCode, String)> {
    let lock = locks.lock(format!("orders/{id}"));
    let guard = lock.acquire_within(Duration::from_millis(300)).await.map_err(refusal)?;
    let work = guard.run(pack_and_send()).await;
    work.map_err(|lost| refusal(lost.into()))?;
    guard.release().await.map_err(refusal)?;
    println!("order {id} is shipped");
    Ok(format!("order {id} is shipped\n"))
}

fn refusal(error: polylock::Error) -> (StatusCode, String) {
    println!("{error}");
    match error.kind() {
        ErrorKind::TimedOut => (StatusCode::CONFLICT, "this order is being shipped\n".into()),
        ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "try again later\n".into()),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "this did not work\n".into()),
    }
}

async fn pack_and_send() {
    sleep(Duration::from_secs(1)).await;
}

/// Ctrl-C, or the SIGTERM that Docker, Kubernetes and systemd send.
async fn stopped() {
    let terminated = async {
        #[cfg(unix)]
        if let Ok(mut signal) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            signal.recv().await;
            return;
        }
        std::future::pending().await
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => println!("stopping: Ctrl-C"),
        () = terminated => println!("stopping: SIGTERM"),
    }
}
