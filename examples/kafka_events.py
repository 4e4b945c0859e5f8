"""Post events from Kafka to a beamtree server: read at least once, stored once. Needs confluent-kafka.

    python examples/kafka_events.py localhost:9092 clicks http://localhost:8000

A message is an event as JSON: {"user_id": 7, "item_id": 50, "timestamp": 1700000000}. Offsets are committed after the
server has the events on disk. Messages read again after a crash have the same key, so the server stores them once.
"""

import sys
import time
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def post(message, server):
    """Retry until the server has stored the message; report and skip a message that it rejects."""
    key = f"{message.topic()}-{message.partition()}-{message.offset()}"
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = Request(f"{server}/v1/events", b'{"events": [%b]}' % (message.value() or b"null"), headers)
    while True:
        try:
            return urlopen(request, timeout=30).close()
        except HTTPError as refusal:
            if refusal.code in (400, 422):
                return print(f"skipped {key}: {refusal.read().decode()}", file=sys.stderr)
            if refusal.code < 500:  # a wrong URL: stop, and commit nothing
                raise
        except OSError as error:
            print(f"no answer from {server}, trying again: {error}", file=sys.stderr)
        time.sleep(1)


def run(consumer, server):
    """Post all messages of the consumer, committing batch by batch."""
    while True:
        messages = consumer.consume(100, timeout=1.0)
        for message in messages:
            if message.error():
                sys.exit(str(message.error()))
            post(message, server)
        if messages:
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    from confluent_kafka import Consumer

    settings = {"group.id": "beamtree", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    kafka = Consumer(settings | {"bootstrap.servers": sys.argv[1]})
    kafka.subscribe([sys.argv[2]])
    run(kafka, sys.argv[3])
