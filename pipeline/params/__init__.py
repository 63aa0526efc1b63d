"""Settings of params.yaml as checked, frozen pydantic models."""

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.params.own import (
    OWN,
    OwnArrays,
    OwnFeatures,
    OwnFiles,
    OwnImages,
    OwnPictures,
    OwnTable,
    OwnTexts,
)
from dprepro.pipeline.params.reading import load, parse, use_code
from dprepro.pipeline.params.schema import (
    Account,
    Data,
    Line,
    Preregistration,
    Public,
    Raw,
    Relevance,
    Row,
    Search,
    Source,
    Start,
    Text,
)
from dprepro.pipeline.params.settings import PAPERS, PARAMS, Settings, pick
