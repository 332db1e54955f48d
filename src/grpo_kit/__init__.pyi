"""The public names and where each lives; `__init__.py` imports them on first use."""

from .advantages import (
    GPG as GPG,
    OPO as OPO,
    EMABaseline as EMABaseline,
    GroupMean as GroupMean,
    LeaveOneOut as LeaveOneOut,
    MaxRL as MaxRL,
    PassAtK as PassAtK,
    PerComponent as PerComponent,
    ReinforcePP as ReinforcePP,
    ReinforcePPBaseline as ReinforcePPBaseline,
    ReMax as ReMax,
    Summand as Summand,
    TeacherLogRatio as TeacherLogRatio,
    WeightedSum as WeightedSum,
)
from .batch import (
    Behavior as Behavior,
    Component as Component,
    Experience as Experience,
    Prompts as Prompts,
    Rewards as Rewards,
    Rollouts as Rollouts,
    Sampled as Sampled,
    Sampling as Sampling,
    Writer as Writer,
)
from .buffers import Buffer as Buffer, Filled as Filled, Refresh as Refresh
from .config import RecipeError as RecipeError, read_recipe as read_recipe
from .corrections import (
    DivergenceMask as DivergenceMask,
    ImportanceWeight as ImportanceWeight,
    Product as Product,
)
from .data import (
    Arithmetic as Arithmetic,
    Curriculum as Curriculum,
    DatasetRows as DatasetRows,
    Example as Example,
    Fault as Fault,
    PassRates as PassRates,
    PromptSet as PromptSet,
    PromptStream as PromptStream,
    ReasoningGymTasks as ReasoningGymTasks,
    Rows as Rows,
)
from .divergences import (
    JSD as JSD,
    AdaptiveCoefficient as AdaptiveCoefficient,
    ForwardKL as ForwardKL,
    ReverseKL as ReverseKL,
    SampledKL as SampledKL,
    TopK as TopK,
    TopKCrossEntropy as TopKCrossEntropy,
)
from .engines import InProcess as InProcess, Server as Server
from .learner import AdamW as AdamW, Learner as Learner
from .logprobs import LogProbs as LogProbs
from .loop import Report as Report, Training as Training, train as train
from .objective import NonFiniteError as NonFiniteError
from .overlap import overlap_ratio as overlap_ratio
from .policies import Lora as Lora, Policy as Policy, PolicySpec as PolicySpec
from .ratios import SequenceRatio as SequenceRatio, TokenRatio as TokenRatio
from .recipe import (
    CheckpointSpec as CheckpointSpec,
    EvaluationSpec as EvaluationSpec,
    Recipe as Recipe,
    RefillSpec as RefillSpec,
    SelectionSpec as SelectionSpec,
)
from .rewards import (
    Correctness as Correctness,
    CosineLength as CosineLength,
    Format as Format,
    KLPenalty as KLPenalty,
    NumberMatch as NumberMatch,
    OnPolicyKD as OnPolicyKD,
    Python as Python,
    ReasoningGymScore as ReasoningGymScore,
    Repetition as Repetition,
    SoftOverlong as SoftOverlong,
    StringMatch as StringMatch,
)
from .samplers import (
    DataRows as DataRows,
    Grouped as Grouped,
    Hinted as Hinted,
    Mixed as Mixed,
    Replay as Replay,
    Share as Share,
    TransformersSampler as TransformersSampler,
    VLLMSampler as VLLMSampler,
)
from .selections import (
    MaxVariance as MaxVariance,
    RandomRows as RandomRows,
    Spread as Spread,
    TopBottom as TopBottom,
)
from .signals import Scores as Scores, SignalKey as SignalKey, Signals as Signals
from .surrogates import (
    CISPO as CISPO,
    DPPO as DPPO,
    GMPO as GMPO,
    SAPO as SAPO,
    Clip as Clip,
    Reinforce as Reinforce,
)
from .terms import (
    CrossEntropy as CrossEntropy,
    DivergenceTerm as DivergenceTerm,
    EntropyBonus as EntropyBonus,
    PolicyGradient as PolicyGradient,
    Where as Where,
)
from .weightings import EqualRows as EqualRows, EqualTokens as EqualTokens, FixedLength as FixedLength

__version__: str
__all__: list[str]
