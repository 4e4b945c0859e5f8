"""A synthetic bookshop: a catalogue of any size with readers, for large-scale demos without a download.

Books belong to genres, topics within a genre, and authors within a topic. A reader has a few topics and mostly
continues with the author or the topic of the last book, so that co-occurrence is informative.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from beamtree.types import Float64Array, Int64Array

GENRES: dict[str, tuple[str, ...]] = {
    "Crime": ("Murder", "Alibi", "Witness", "Detective", "Verdict", "Poisoner", "Burglar", "Confession"),
    "Fantasy": ("Dragon", "Wizard", "Throne", "Sword", "Oracle", "Curse", "Crown", "Familiar"),
    "Science Fiction": ("Starship", "Android", "Colony", "Signal", "Orbit", "Machine", "Exile", "Nebula"),
    "Romance": ("Wedding", "Letter", "Promise", "Summer", "Stranger", "Secret", "Dance", "Heart"),
    "History": ("Empire", "Siege", "Revolution", "Treaty", "Dynasty", "Voyage", "Harbour", "Battle"),
    "Travel": ("Road", "Island", "Railway", "Mountain", "Desert", "Map", "River", "Border"),
    "Cooking": ("Kitchen", "Bread", "Table", "Harvest", "Spice", "Oven", "Feast", "Garden"),
    "Biography": ("Life", "Diary", "Portrait", "Childhood", "Memoir", "Rise", "Years", "Journey"),
    "Horror": ("Haunting", "Cellar", "Shadow", "Grave", "Asylum", "Nightmare", "Ritual", "Doll"),
    "Children": ("Rabbit", "Pirate", "Treehouse", "Balloon", "Kitten", "Circus", "Lighthouse", "Snowman"),
    "Nature": ("Forest", "Whale", "Meadow", "Storm", "Wolf", "Tide", "Owl", "Glacier"),
    "Business": ("Market", "Startup", "Bargain", "Office", "Factory", "Fortune", "Leader", "Brand"),
    "Poetry": ("Song", "Silence", "Window", "Winter", "Mirror", "Lantern", "Echo", "Rain"),
    "Philosophy": ("Question", "Mind", "Virtue", "Paradox", "Freedom", "Truth", "Doubt", "Reason"),
    "Mathematics": ("Number", "Proof", "Puzzle", "Theorem", "Pattern", "Infinity", "Circle", "Chance"),
    "Art": ("Painter", "Colour", "Museum", "Sculptor", "Canvas", "Atelier", "Fresco", "Forgery"),
}
ADJECTIVES = (
    "Silent", "Golden", "Last", "Hidden", "Broken", "Distant", "Crimson", "Forgotten", "Restless", "Quiet", "Wandering",
    "Burning", "Frozen", "Secret", "Hollow", "Bright", "Drowned", "Patient", "Perfect", "Second", "Stolen", "Tangled",
    "Unlikely", "Vanishing", "Wild", "Winter", "Borrowed", "Clockwork", "Empty", "Endless",
)  # fmt: skip
PLACES = (
    "Aldermoor", "Bellhaven", "Corran", "Dunwick", "Eastmere", "Fallow Hill", "Grenna", "Harrow Bay", "Ilmar", "Jessop",
    "Kestrel Rock", "Lindholm", "Marrow Lane", "Northgate", "Orsk", "Pellam", "Quarry End", "Ravensea", "Solway",
    "Tarn", "Umber", "Valmont", "Westering", "Yarrow", "Zell", "Ashby", "Brindle", "Cold Spring", "Dorrance", "Elm Row",
    "Finch Street", "Glasshouse", "Hollin", "Isla Verde", "Juniper", "Kirkwall", "Lowmarsh", "Mistral", "New Albion",
    "Old Town",
)  # fmt: skip
FIRST_NAMES = (
    "Ada", "Bruno", "Carla", "Dmitri", "Edith", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Leon", "Mara",
    "Nils", "Olga", "Pablo", "Rosa", "Sven", "Tara", "Ugo", "Vera", "Wim", "Yara", "Zeno",
)  # fmt: skip
LAST_NAMES = (
    "Abbott", "Berg", "Castell", "Dorn", "Ekström", "Fontaine", "Grau", "Haldane", "Ivarsson", "Jansen", "Kovacs",
    "Lindqvist", "Moreau", "Novak", "Okafor", "Petrov", "Quinn", "Rossi", "Sato", "Tanaka", "Ulrich", "Varga", "Weiss",
    "Young", "Zielinski", "Amadi", "Brandt", "Chen", "Dubois", "Eriksen",
)  # fmt: skip

BOOKS_PER_AUTHOR = 6
BOOKS_PER_READER = (5, 45)
TOPICS_PER_GENRE = 24
TOPICS_PER_READER = 3
SAME_AUTHOR, SAME_TOPIC, OWN_TOPICS = 0.4, 0.4, 0.15
"""How a reader goes on; the rest of the time with any book, popular ones first."""


@dataclass(frozen=True, eq=False)
class Bookshop:
    """Tables as `read_log` and `read_items` take them."""

    interactions: pl.DataFrame
    items: pl.DataFrame


def make_bookshop(num_books: int, num_readers: int, *, seed: int) -> Bookshop:
    """A shop with the given numbers of books and readers; each reader has read 5 to 45 of them, in order of time."""
    generator = np.random.default_rng(seed)
    num_topics = len(GENRES) * TOPICS_PER_GENRE
    num_authors = max(num_topics, num_books // BOOKS_PER_AUTHOR)
    topic_of_author = np.sort(generator.choice(num_topics, size=num_authors, p=_zipf(num_topics, generator, power=0.4)))
    author_of_book = np.sort(generator.integers(0, num_authors, size=num_books))
    topic_of_book = topic_of_author[author_of_book]
    popularity = generator.pareto(1.3, size=num_books) + 0.25
    shelf = _Shelf(author_of_book, topic_of_book, popularity)
    lengths = generator.integers(*BOOKS_PER_READER, size=num_readers, endpoint=True)
    own_topics = generator.choice(
        num_topics, size=(num_readers, TOPICS_PER_READER), p=_zipf(num_topics, generator, power=0.6)
    )
    books = _read(shelf, own_topics, steps=int(lengths.max()), generator=generator)
    is_read = np.arange(books.shape[1]) < lengths[:, None]
    starts = generator.integers(0, 300 * 86_400, size=num_readers)
    times = 1_700_000_000 + starts[:, None] + np.cumsum(generator.integers(3_600, 9 * 86_400, size=books.shape), axis=1)
    readers = np.broadcast_to(np.arange(num_readers)[:, None], books.shape)
    interactions = pl.DataFrame(
        {"user_id": readers[is_read], "item_id": 1 + books[is_read], "timestamp": times[is_read]}
    ).unique(["user_id", "item_id"], keep="first", maintain_order=True)
    return Bookshop(interactions, _catalogue(author_of_book, topic_of_book, generator=generator))


class _Shelf:
    """Books in the order of their topics and authors; within a range, sampling is by popularity."""

    def __init__(self, author_of_book: Int64Array, topic_of_book: Int64Array, popularity: Float64Array) -> None:
        self.author_of_book = author_of_book
        self.topic_of_book = topic_of_book
        self._cumulative = np.concatenate([[0.0], np.cumsum(popularity)])
        self._author_starts = np.searchsorted(author_of_book, np.arange(author_of_book[-1] + 2))
        self._topic_starts = np.searchsorted(topic_of_book, np.arange(len(GENRES) * TOPICS_PER_GENRE + 1))

    def of_author(self, authors: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The range of books of each author."""
        return self._author_starts[authors], self._author_starts[authors + 1]

    def of_topic(self, topics: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The range of books of each topic."""
        return self._topic_starts[topics], self._topic_starts[topics + 1]

    def draw(self, first: Int64Array, end: Int64Array, *, generator: np.random.Generator) -> Int64Array:
        """One book per range; any book of the shop for an empty range."""
        first, end = np.where(first == end, 0, first), np.where(first == end, len(self.author_of_book), end)
        low, high = self._cumulative[first], self._cumulative[end]
        drawn = np.searchsorted(self._cumulative, low + generator.random(len(first)) * (high - low), side="right") - 1
        return np.asarray(np.clip(drawn, first, end - 1))


def _read(shelf: _Shelf, own_topics: Int64Array, *, steps: int, generator: np.random.Generator) -> Int64Array:
    """What each reader reads, (readers, steps), the oldest first."""
    num_readers = len(own_topics)
    rows = np.arange(num_readers)
    books = np.empty((num_readers, steps), dtype=np.int64)
    books[:, 0] = shelf.draw(*shelf.of_topic(own_topics[:, 0]), generator=generator)
    for step in range(1, steps):
        last = books[:, step - 1]
        mood = generator.random(num_readers)
        wanted = own_topics[rows, generator.integers(0, own_topics.shape[1], size=num_readers)]
        choices = (
            shelf.of_author(shelf.author_of_book[last]),
            shelf.of_topic(shelf.topic_of_book[last]),
            shelf.of_topic(wanted),
        )
        is_chosen = [mood < share for share in np.cumsum([SAME_AUTHOR, SAME_TOPIC, OWN_TOPICS])]
        first = np.select(is_chosen, [first for first, _ in choices], default=0)
        end = np.select(is_chosen, [end for _, end in choices], default=len(shelf.author_of_book))
        books[:, step] = shelf.draw(first, end, generator=generator)
    return books


def _catalogue(
    author_of_book: Int64Array, topic_of_book: Int64Array, *, generator: np.random.Generator
) -> pl.DataFrame:
    """Ids from 1 on, a title, the genre as the category, the author, the year."""
    genres = list(GENRES)
    nouns = np.array([GENRES[genre] for genre in genres])
    genre_of_book = topic_of_book // TOPICS_PER_GENRE
    in_topic = topic_of_book % TOPICS_PER_GENRE
    noun = nouns[genre_of_book, (in_topic + generator.integers(0, 3, size=len(in_topic))) % nouns.shape[1]]
    adjective = np.array(ADJECTIVES)[generator.integers(0, len(ADJECTIVES), size=len(noun))]
    place = np.array(PLACES)[(author_of_book + generator.integers(0, 4, size=len(noun))) % len(PLACES)]
    first = np.array(FIRST_NAMES)[author_of_book % len(FIRST_NAMES)]
    last = np.array(LAST_NAMES)[author_of_book // len(FIRST_NAMES) % len(LAST_NAMES)]
    words = pl.DataFrame({"adjective": adjective, "noun": noun, "place": place, "first": first, "last": last})
    title = pl.format("{} {} of {}", "adjective", "noun", "place")
    return words.select(
        item_id=pl.int_range(1, pl.len() + 1),
        title=pl.when(title.is_duplicated()).then(pl.format("{} ({})", title, "last")).otherwise(title),
        category=pl.Series(np.array(genres)[genre_of_book]),
        author=pl.format("{} {}", "first", "last"),
        year=pl.Series(generator.integers(1950, 2026, size=len(noun))),
    )


def _zipf(count: int, generator: np.random.Generator, *, power: float) -> Float64Array:
    """Shares that fall by rank, in random order, (count,)."""
    shares = 1.0 / np.arange(1, count + 1) ** power
    return np.asarray(generator.permutation(shares / shares.sum()))
