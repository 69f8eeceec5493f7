//! Messages between nodes that run different releases, in each format.

use std::time::Duration;

use procession::{CallError, Context, Reply, start};
use procession_cluster::Remote;
use procession_cluster::serialize::{Format, message};
use serde::{Deserialize, Serialize};

use crate::{PATIENCE, pair, run, until};

/// The versions of a message that two releases know.
#[derive(Debug, Serialize, Deserialize)]
struct Wish {
    item: String,
    #[serde(with = "procession_cluster::serialize::reply")]
    reply: Reply<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct NewWish {
    urgent: bool,
    item: String,
    #[serde(with = "procession_cluster::serialize::reply")]
    reply: Reply<String>,
}

#[test]
fn a_release_understands_the_next_one_and_counts_what_it_does_not() {
    run(async {
        let (a, b) = pair().await;
        for format in [Format::Term, Format::Postcard, Format::MessagePack] {
            let mut shop = start(|mut cx: Context<Wish>| async move {
                while let Some(Wish { item, reply }) = cx.recv().await {
                    reply.send(item);
                }
            });
            let wishes = message::<Wish>("shop.wish", 1).in_format(format);
            b.register("shop", &wishes.attach(&b, shop.address())).expect("the name is free");
            let shop_of_b = Remote::named("shop", "b@127.0.0.1");
            let same = wishes.address(&a, shop_of_b.clone());
            let item = same.call(|reply| Wish { item: "tea".into(), reply }, PATIENCE).await;
            assert_eq!(item.expect("it replies"), "tea");

            let next = message::<NewWish>("shop.wish", 1).in_format(format);
            let next = next.address(&a, shop_of_b.clone());
            let wish = |reply| NewWish { urgent: true, item: "tea".into(), reply };
            let undelivered = || b.peers()[0].undelivered;
            let mut before = undelivered();
            if format != Format::Postcard {
                let item = next.call(wish, PATIENCE).await;
                assert_eq!(item.expect("it replies"), "tea");
                assert_eq!(undelivered(), before);
            }

            // Another version, and another format.
            let version = message::<NewWish>("shop.wish", 2).in_format(format);
            let other = if format == Format::Term { Format::Postcard } else { Format::Term };
            let other = message::<NewWish>("shop.wish", 1).in_format(other);
            for unknown in [version, other] {
                let address = unknown.address(&a, shop_of_b.clone());
                let ignored = address.call(wish, Duration::from_millis(1)).await;
                assert!(matches!(ignored, Err(CallError::Elapsed)), "{ignored:?}");
                until(|| undelivered() == before + 1).await;
                before += 1;
            }
            shop.cancel();
            (&mut shop).await.expect("it ends");
            until(|| b.status().names.is_empty()).await;
        }
    });
}
